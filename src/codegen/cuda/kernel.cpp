#include "codegen/cuda/kernel.h"

#include "base/error.h"
#include "codegen/cuda/gemm.h"
#include "codegen/cuda/print_kernel.h"
#include "kernel/passes.h"
#include "schedule/expand.h"

namespace inkle::codegen::cuda {

KernelSource write_kernel(const schedule::Kernel& kernel, const schedule::Schedule& schedule,
                          const std::string& name, sym::Context& context,
                          const kernel::PassOptions& passes) {
  if (const auto* gemm = std::get_if<schedule::GemmKernel>(&kernel.body)) {
    kernel::Kernel made = write_gemm(kernel, *gemm, schedule, context);
    kernel::PassOptions own = passes;
    own.skip.insert(own.skip.end(), {"lower_collectives", "place_barriers"});
    kernel::run_passes(made, context, kernel::gpu_passes(), own);
    return print_kernel(made, name, schedule::to_string(schedule), context);
  }
  if (!std::holds_alternative<schedule::LoopKernel>(kernel.body)) {
    unsupported("{}: attention as a kernel of our own", fmt::join(kernel.sources, ", "));
  }
  INKLE_CHECK(schedule.blocks.has_value(), "kernel {} has no block schedule", kernel.name);
  kernel::Kernel made = schedule::expand(kernel, schedule, context);
  kernel::run_passes(made, context, kernel::gpu_passes(), passes);
  return print_kernel(made, name, schedule::to_string(schedule), context);
}

}  // namespace inkle::codegen::cuda
