// Liveness of memory in a call with donated arguments: what is allocated before each step and freed
// after it. In a backward graph saved tensors die while gradients and temporaries come to life, so
// the same memory can serve both.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "abi/plan.h"

namespace inkle::runtime::cuda {

struct StepAllocations {
  std::vector<abi::PlanBuffer> allocated;  // before the step: outputs and large temporaries
  std::vector<abi::PlanBuffer> freed;      // after it: arguments and large temporaries
};

// Smaller temporaries stay in the arena: an allocation of their own costs more than it saves.
inline constexpr std::int64_t kLeastAllocation = std::int64_t{1} << 20;

// By step. `roots`: for each buffer the one whose memory it aliases; `bytes` and `is_kept` by
// buffer. Memory with `is_kept` lives until the call ends.
[[nodiscard]] std::vector<StepAllocations> plan_allocations(const abi::Plan& plan,
                                                            std::span<const abi::PlanBuffer> roots,
                                                            std::span<const std::int64_t> bytes,
                                                            const std::vector<bool>& is_kept);

}  // namespace inkle::runtime::cuda
