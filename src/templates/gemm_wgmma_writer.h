// Writes one kernel of gemm_wgmma. For gemm_wgmma*.cpp only.
#pragma once

#include "templates/gemm_wgmma.h"

namespace inkle::templates::wgmma {

[[nodiscard]] kernel::Kernel write_kernel(const GemmProblem& problem, const WgmmaConfig& config,
                                          sym::Context& context);

}  // namespace inkle::templates::wgmma
