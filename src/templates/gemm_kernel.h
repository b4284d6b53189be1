// The kernel of matrix products; for files of this folder only.
#pragma once

#include "templates/gemm.h"

namespace inkle::templates {

// Rows of a group, whose sums registers hold; and of a task in whole groups.
struct GemmRows {
  std::int64_t group, padded;
};
[[nodiscard]] GemmRows gemm_rows(const GemmProblem& problem, const GemmConfig& config);

// Terms of a part of the left operand where it is packed on the stack.
[[nodiscard]] std::int64_t left_depth(const GemmProblem& problem, const GemmConfig& config);

[[nodiscard]] kernel::Kernel emit_gemm(const GemmProblem& problem, const GemmConfig& config,
                                       sym::Context& context);

}  // namespace inkle::templates
