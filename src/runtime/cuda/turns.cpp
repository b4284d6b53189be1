#include "runtime/cuda/turns.h"

#include <algorithm>

namespace inkle::runtime::cuda {

using abi::PlanBuffer;
using Kind = abi::BufferDecl::Kind;

std::vector<Turn> plan_turns(const abi::Plan& plan, std::span<const PlanBuffer> roots,
                             std::span<const std::int64_t> bytes,
                             const std::vector<bool>& is_kept) {
  const auto steps = static_cast<std::uint32_t>(plan.steps.size());
  std::vector<Turn> turns(steps);
  if (steps == 0) return turns;
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
    const bool is_piece = is_on_device && decl.kind == Kind::arena && bytes[b] >= kLeastPiece;
    if (is_piece || decl.kind == Kind::output) turns[first[b]].takes.push_back(buffer);
    const bool may_go = is_piece || (is_on_device && decl.kind == Kind::argument && !is_kept[b]);
    if (may_go && last[b] < steps) turns[last[b]].drops.push_back(buffer);
  }
  return turns;
}

}  // namespace inkle::runtime::cuda
