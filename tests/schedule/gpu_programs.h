// Graphs scheduled for a small GPU, and arguments for a kernel of theirs.
#pragma once

#include "abi/targets.h"
#include "graph/text.h"
#include "lower/lower.h"
#include "ops/table.h"
#include "passes/pipeline.h"
#include "schedule/kernel_builder.h"
#include "schedule/schedule.h"

namespace inkle::schedule::testing {

// For an sm_90a of so few multiprocessors that little is work for several blocks.
inline ScheduledProgram scheduled_on_gpu(const char* text, const char* name,
                                         std::int32_t parallelism) {
  Options options;
  options.target = *abi::gpu_target("sm_90a");
  options.target.parallelism = parallelism;
  options.target.bytes_per_second = 2.6e11;
  options.target.flops_f32 = 3.4e12;
  options.target.functions_per_second = 2.5e11;
  passes::PassContext passes;
  return schedule(lower::lower(passes::run_passes(graph::parse(text, name, ops::op_table()),
                                                  passes::standard_pipeline(), passes)),
                  options);
}

// Random where it is read; one bool is true.
inline std::vector<Array> arrays_of(const KernelStep& step, const loop::Program& program) {
  std::vector<Array> arrays;
  for (std::size_t p = 0; p < step.buffers.size(); ++p) {
    const DType dtype = step.param(p).dtype;
    std::int64_t count = 1;
    for (const Expr size : program.buffers[step.buffers[p]].sizes) count *= *size.constant();
    if (step.param(p).role != ParamRole::in) {
      arrays.emplace_back(dtype, count);
    } else if (dtype == DType::boolean) {
      arrays.emplace_back(dtype, count).set(count - 3, 1);
    } else {
      arrays.push_back(random_array(dtype, count, 7));
    }
  }
  return arrays;
}

}  // namespace inkle::schedule::testing
