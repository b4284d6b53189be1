#include "codegen/cuda/kernel.h"

#include <utility>

#include "base/error.h"
#include "codegen/cuda/gemm.h"
#include "codegen/cuda/print_kernel.h"
#include "kernel/passes.h"
#include "kernel/text_alone.h"
#include "schedule/expand.h"

namespace inkle::codegen::cuda {
namespace {

KernelSource print(kernel::Kernel made, const std::string& name, const schedule::Schedule& schedule,
                   sym::Context& context, const kernel::PassOptions& passes, bool keeps_kernel) {
  kernel::run_passes(made, context, kernel::gpu_passes(), passes);
  KernelSource source = print_kernel(made, name, schedule::to_string(schedule), context);
  if (keeps_kernel) source.kernel = kernel::text_alone(std::move(made), name);
  return source;
}

}  // namespace

KernelSource write_kernel(const schedule::Kernel& kernel, const schedule::Schedule& schedule,
                          const std::string& name, sym::Context& context, const abi::Target& target,
                          const kernel::PassOptions& passes, bool keeps_kernel) {
  if (const auto* gemm = std::get_if<schedule::GemmKernel>(&kernel.body)) {
    kernel::Kernel made = write_gemm(kernel, *gemm, schedule, context);
    kernel::PassOptions own = passes;
    own.skip.insert(own.skip.end(), {"lower_collectives", "place_barriers"});
    return print(std::move(made), name, schedule, context, own, keeps_kernel);
  }
  if (!std::holds_alternative<schedule::LoopKernel>(kernel.body)) {
    unsupported("{}: no CUDA kernel for attention", fmt::join(kernel.sources, ", "));
  }
  INKLE_CHECK(schedule.blocks.has_value(), "kernel {} has no block schedule", kernel.name);
  return print(schedule::expand(kernel, schedule, context, target), name, schedule, context, passes,
               keeps_kernel);
}

}  // namespace inkle::codegen::cuda
