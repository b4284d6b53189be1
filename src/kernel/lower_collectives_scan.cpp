// Scans and broadcasts over axes, lowered. A scan of a warp doubles the distance from which lanes
// take what comes before them; warps leave their totals, which each warp scans again.
#include <algorithm>

#include "base/error.h"
#include "kernel/lower_collectives_emit.h"

namespace inkle::kernel {
namespace {

using loop::Opcode;

constexpr std::int64_t kWarp = 32;

}  // namespace

Values CollectiveLowering::shuffled(const Values& states, const Shuffle& info, ValueId by) {
  Values out;
  for (const ValueId v : states) {
    const Values operands = by == kNone ? Values{v} : Values{v, by};
    out.push_back(builder_.operation(Op::shuffle, operands, {builder_.type_of(v)}, info)[0]);
  }
  return out;
}

Shuffle CollectiveLowering::shuffle(ShuffleKind kind, std::int64_t by) const {
  return {kind, static_cast<std::int32_t>(by),
          static_cast<std::int32_t>(whole_warp_ ? kWarp : plan_.width), whole_warp_};
}

Values CollectiveLowering::from_lane(const Values& states, Expr lane) {
  const auto constant = lane.constant();
  if (constant) return shuffled(states, shuffle(ShuffleKind::from, *constant));
  return shuffled(states, shuffle(ShuffleKind::from, 0), builder_.index(lane, DType::i32));
}

Values CollectiveLowering::selected(ValueId condition, const Values& a, const Values& b) {
  Values out;
  for (std::size_t s = 0; s < a.size(); ++s) {
    out.push_back(
        builder_.compute(Opcode::select, builder_.type_of(a[s]).dtype, {condition, a[s], b[s]}));
  }
  return out;
}

ValueId CollectiveLowering::is_at_least(Expr e, std::int64_t bound) {
  return builder_.compute(Opcode::greater_equal, DType::boolean,
                          {builder_.index(e), builder_.integer(DType::i64, bound)});
}

// Each of `count` lanes, `stride` apart, gets what it and those before it make.
Values CollectiveLowering::scan_lanes(const Values& states, Expr position, std::int64_t count,
                                      std::int64_t stride) {
  Values out = states;
  for (std::int64_t by = 1; by < count; by *= 2) {
    const Values before = shuffled(out, shuffle(ShuffleKind::up, by * stride));
    const Values joined = merge(before, out);
    out = selected(is_at_least(position, by), joined, out);
  }
  return out;
}

Values CollectiveLowering::scan(const Operation& o) {
  const std::size_t count = o.results.size();
  const auto middle = o.operands.begin() + static_cast<std::ptrdiff_t>(count);
  const Values states(o.operands.begin(), middle);
  const Values first(middle, o.operands.end());
  const std::int64_t stride = plan_.shuffled.empty() ? 1 : plan_.shuffled.front().stride;
  const std::int64_t lanes = plan_.width / stride;
  const Expr at = position(plan_.shuffled);
  const Values all = scan_lanes(states, at, lanes, stride);
  if (plan_.stored.empty()) {
    if (!info_.exclusive) return all;
    const Values before = shuffled(all, shuffle(ShuffleKind::up, stride));
    return selected(is_at_least(at, 1), before, first);
  }
  const Expr warp = position(plan_.stored);
  const Values warps_before = totals_before(all, at, warp);
  const ValueId has_warps_before = is_at_least(warp, 1);
  if (!info_.exclusive) return selected(has_warps_before, merge(warps_before, all), all);
  const Values before = shuffled(all, shuffle(ShuffleKind::up, 1));
  const Values in_warp = selected(has_warps_before, merge(warps_before, before), before);
  const Values at_start = selected(has_warps_before, warps_before, first);
  return selected(is_at_least(at, 1), in_warp, at_start);
}

// What the warps before this one make together; of the first warp, anything.
Values CollectiveLowering::totals_before(const Values& all, Expr lane, Expr warp) {
  std::int64_t warps = 1;
  for (const ThreadAxis& axis : plan_.stored) warps *= axis.extent;
  Expr own = vector_lane() * (plan_.threads / kWarp);
  for (const ThreadAxis& axis : threads_) {
    if (axis.stride >= kWarp) own = own + axis.variable * (axis.stride / kWarp);
  }
  if_zero(kWarp - 1 - lane, [&] {
    for (std::size_t s = 0; s < all.size(); ++s) store_scratch(info_.scratch[s], own, all[s]);
  });
  outside([&] { barrier(Scope::block); });
  Expr place = own;
  std::int64_t inner = 1;
  for (const ThreadAxis& axis : plan_.stored) {
    const std::int64_t stride = axis.stride / kWarp;
    place =
        place - axis.variable * stride + sym::mod(sym::floordiv(lane, inner), axis.extent) * stride;
    inner *= axis.extent;
  }
  Values totals;
  for (const MemoryId scratch : info_.scratch) totals.push_back(load_scratch(scratch, place));
  totals = scan_lanes(totals, lane, warps, 1);
  return from_lane(totals, sym::max(warp - 1, context_.constant(0)));
}

Values CollectiveLowering::broadcast(const Operation& o) {
  // The positions of who gives, by axis.
  std::int64_t rest = info_.from;
  std::vector<ThreadAxis> members = plan_.shuffled;
  members.insert(members.end(), plan_.stored.begin(), plan_.stored.end());
  Expr apart = context_.constant(0);  // from it, in threads
  std::vector<std::int64_t> from;
  for (const ThreadAxis& axis : members) {
    from.push_back(rest % axis.extent);
    rest /= axis.extent;
    apart = apart + (axis.variable - from.back()) * axis.stride;
  }
  if (plan_.in_warp()) {
    return from_lane(o.operands, sym::mod(lane() - apart, kWarp));
  }
  const Expr place = vector_lane() * plan_.teams + position(others(members));
  if_zero(apart, [&] { store_scratch(info_.scratch[0], place, o.operands[0]); });
  outside([&] { barrier(Scope::block); });
  return {load_scratch(info_.scratch[0], place)};
}

}  // namespace inkle::kernel
