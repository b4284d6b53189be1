// Liveness of memory in a call with donated arguments: what is allocated before each step and freed
// after it. In a backward graph saved tensors die while gradients and working memory come to life,
// so the same memory can serve both.
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

// Smaller working memory stays in the arena: an allocation of its own costs more than it saves.
inline constexpr std::int64_t kLeastPiece = std::int64_t{1} << 20;

// One Turn a step. `roots`: for each buffer the one whose memory it aliases; `bytes` and `is_kept`
// by buffer. Memory with `is_kept` lives until the call ends.
[[nodiscard]] std::vector<Turn> plan_turns(const abi::Plan& plan,
                                           std::span<const abi::PlanBuffer> roots,
                                           std::span<const std::int64_t> bytes,
                                           const std::vector<bool>& is_kept);

}  // namespace inkle::runtime::cuda
