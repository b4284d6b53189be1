// The kernel of matrix products in tile registers; for files of this folder only.
#pragma once

#include "templates/gemm.h"

namespace inkle::templates {

[[nodiscard]] std::vector<GemmConfig> tile_configs(const GemmProblem& problem,
                                                   const abi::Target& target);
[[nodiscard]] std::string tile_needs(const GemmProblem& problem, const GemmConfig& config);
[[nodiscard]] Estimate tile_estimate(const GemmProblem& problem, const GemmConfig& config);
[[nodiscard]] kernel::Kernel emit_tile_gemm(const GemmProblem& problem, const GemmConfig& config,
                                            sym::Context& context);

}  // namespace inkle::templates
