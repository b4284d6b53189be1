// Memory of a call that may let go of its arguments, step by step: what is taken before a step and
// given back behind it. In the backward of a model tensors that the forward kept die as gradients
// and working memory come to life, so that neither waits for the other's.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "abi/plan.h"

namespace inkle::runtime::cuda {

struct Turn {
  std::vector<abi::PlanBuffer> takes;  // outputs and large working memory
  std::vector<abi::PlanBuffer> drops;  // arguments and large working memory
};

// Working memory of fewer bytes lies in the arena: an allocation takes longer than it is worth.
inline constexpr std::int64_t kLeastPiece = std::int64_t{1} << 20;

// By step. `roots`: of each buffer the one whose memory it is; `bytes` and `is_kept` by buffer, the
// second for memory that must live as long as the call.
[[nodiscard]] std::vector<Turn> plan_turns(const abi::Plan& plan,
                                           std::span<const abi::PlanBuffer> roots,
                                           std::span<const std::int64_t> bytes,
                                           const std::vector<bool>& is_kept);

}  // namespace inkle::runtime::cuda
