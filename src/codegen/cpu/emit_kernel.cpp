// Emits a kernel's function: expands its schedule to kernel IR, runs passes, prints LLVM IR.
#include <utility>

#include "base/error.h"
#include "codegen/cpu/attention_problem.h"
#include "codegen/cpu/gemm_problem.h"
#include "codegen/cpu/kernel_code.h"
#include "codegen/cpu/print_kernel.h"
#include "kernel/passes.h"
#include "kernel/text_alone.h"
#include "schedule/expand.h"

namespace inkle::codegen::cpu {

using schedule::LoopKernel;

namespace {

// The context of the kernel's expressions.
sym::Context& context_of(const schedule::Kernel& kernel, const LoopKernel& loops) {
  if (!kernel.sizes.empty()) return kernel.sizes[0].context();
  if (!loops.outer.empty()) return loops.outer[0].extent.context();
  for (const schedule::Stage& stage : loops.stages) {
    if (!stage.inner.empty()) return stage.inner[0].extent.context();
    if (!stage.stores.empty()) return stage.stores[0].offset.context();
  }
  INKLE_CHECK(false, "kernel {} stores nothing", kernel.name);
}

// What is the same for all kernels of a module.
struct KernelEmitter {
  Ir& ir;
  const Values& arguments;
  std::string_view called;
  const kernel::PassOptions& passes;

  EmittedKernel print(kernel::Kernel made, sym::Context& context,
                      const PrintOptions& options = {}) const {
    kernel::run_passes(made, context, kernel::cpu_passes(), passes);
    EmittedKernel result = print_kernel(ir, made, context, arguments, options);
    if (!called.empty()) result.text = kernel::text_alone(std::move(made), called);
    return result;
  }
};

EmittedKernel emit_loops(const KernelEmitter& emitter, const schedule::Kernel& kernel,
                         const schedule::Schedule& schedule, const LoopKernel& loops) {
  sym::Context& context = context_of(kernel, loops);
  return emitter.print(schedule::expand(kernel, schedule, context), context);
}

// The kernel that the template writes for this problem.
template <class Problem, class Config>
EmittedKernel emit_template(const KernelEmitter& emitter,
                            const templates::Template<Problem, Config>& row, const Problem& problem,
                            const Config& config) {
  if (const std::string lacks = row.needs(problem, config); !lacks.empty()) {
    unsupported("{}", lacks);
  }
  sym::Context& context = problem.batch.context();
  return emitter.print(row.emit(problem, config, context), context, {.counts_loops = true});
}

}  // namespace

EmittedKernel emit_kernel(Ir& ir, const schedule::Kernel& kernel,
                          const schedule::Schedule& schedule, const Processor& processor,
                          std::string_view name, std::string_view called,
                          const kernel::PassOptions& passes) {
  const Values arguments =
      ir.begin_function(name, processor.cpu, processor.features, processor.target.has_fma);
  const KernelEmitter emitter{ir, arguments, called, passes};
  EmittedKernel result;
  if (const auto* loops = std::get_if<LoopKernel>(&kernel.body)) {
    result = emit_loops(emitter, kernel, schedule, *loops);
  } else if (const auto* gemm = std::get_if<schedule::GemmKernel>(&kernel.body)) {
    const templates::GemmProblem problem = gemm_problem(kernel, *gemm);
    const templates::GemmTemplate& row = templates::gemm_template_of(problem);
    const auto config = gemm_config(row, problem, schedule, processor.target);
    result = emit_template(emitter, row, problem, config);
  } else {
    const auto& attention = std::get<schedule::AttentionKernel>(kernel.body);
    const templates::AttentionProblem problem = attention_problem(kernel, attention);
    const templates::AttentionTemplate& row = templates::attention_template_of(problem);
    const auto config = attention_config(row, problem, schedule, processor.target);
    result = emit_template(emitter, row, problem, config);
  }
  ir.end_function();
  return result;
}

}  // namespace inkle::codegen::cpu
