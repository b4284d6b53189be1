#include "runtime/cuda/step_allocations.h"

#include <algorithm>

namespace inkle::runtime::cuda {

using abi::PlanBuffer;
using Kind = abi::BufferDecl::Kind;

std::vector<StepAllocations> plan_allocations(const abi::Plan& plan,
                                              std::span<const PlanBuffer> roots,
                                              std::span<const std::int64_t> bytes,
                                              const std::vector<bool>& is_kept) {
  const auto steps = static_cast<std::uint32_t>(plan.steps.size());
  std::vector<StepAllocations> result(steps);
  if (steps == 0) return result;
  const std::size_t count = plan.buffers.size();
  // Liveness of a root covers the uses of all its aliases.
  std::vector<std::uint32_t> first(count, steps - 1), last(count, 0);
  for (std::size_t b = 0; b < count; ++b) {
    first[roots[b]] = std::min(first[roots[b]], plan.buffers[b].first_use);
    last[roots[b]] = std::max(last[roots[b]], plan.buffers[b].last_use);
  }
  for (std::size_t b = 0; b < count; ++b) {
    const abi::BufferDecl& decl = plan.buffers[b];
    if (roots[b] != b) continue;
    const bool is_on_device = decl.device.kind != abi::DeviceKind::cpu;
    const auto buffer = static_cast<PlanBuffer>(b);
    const bool is_allocated =
        is_on_device && decl.kind == Kind::arena && bytes[b] >= kLeastAllocation;
    if (is_allocated || decl.kind == Kind::output) result[first[b]].allocated.push_back(buffer);
    const bool is_freed =
        is_allocated || (is_on_device && decl.kind == Kind::argument && !is_kept[b]);
    if (is_freed && last[b] < steps) result[last[b]].freed.push_back(buffer);
  }
  return result;
}

}  // namespace inkle::runtime::cuda
