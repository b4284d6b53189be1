// A scheduled kernel of matrix products as the kernel that a template writes for it.
#pragma once

#include "kernel/kernel.h"
#include "schedule/kernel.h"
#include "templates/gemm_wgmma.h"

namespace inkle::codegen::cuda {

[[nodiscard]] templates::GemmProblem wgmma_problem(const schedule::Kernel& kernel,
                                                   const schedule::GemmKernel& gemm);
[[nodiscard]] templates::WgmmaConfig wgmma_config(const schedule::GemmSchedule& schedule);

// Throws Unsupported, saying what the problem lacks for the template.
[[nodiscard]] kernel::Kernel write_gemm(const schedule::Kernel& kernel,
                                        const schedule::GemmKernel& gemm,
                                        const schedule::Schedule& schedule, sym::Context& context);

}  // namespace inkle::codegen::cuda
