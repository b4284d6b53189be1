// Scans and broadcasts over axes, lowered. A scan of a warp doubles the distance from which lanes
// take what comes before them; warps leave their totals, which each warp scans again.
#include <algorithm>
#include <bit>
#include <unordered_map>

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

// --- Scans of one merge --------------------------------------------------------------------------

namespace {

bool is_same(const Detail& a, const Detail& b) {
  if (a.index() != b.index()) return false;
  if (const auto* x = std::get_if<Compute>(&a)) {
    return x->opcode == std::get<Compute>(b).opcode;
  }
  if (const auto* x = std::get_if<Function>(&a)) {
    return x->function == std::get<Function>(b).function;
  }
  if (const auto* x = std::get_if<IndexOf>(&a)) {
    return x->expression == std::get<IndexOf>(b).expression;
  }
  if (const auto* x = std::get_if<Immediate>(&a)) {
    const auto& y = std::get<Immediate>(b);
    return x->integer == y.integer &&
           std::bit_cast<std::uint64_t>(x->real) == std::bit_cast<std::uint64_t>(y.real);
  }
  return false;  // branches are not looked into
}

// Whether two merges are the same operations.
bool is_same(const Kernel& kernel, RegionId a, RegionId b) {
  const Region &x = kernel.regions[a], &y = kernel.regions[b];
  if (x.operations.size() != y.operations.size()) return false;
  std::unordered_map<ValueId, ValueId> to;
  const auto are_same = [&](const Values& v, const Values& w) {
    return std::ranges::equal(v, w, [&](ValueId i, ValueId j) {
      const auto found = to.find(i);
      return (found == to.end() ? i : found->second) == j;
    });
  };
  for (std::size_t i = 0; i < x.arguments.size(); ++i) to[x.arguments[i]] = y.arguments[i];
  for (std::size_t i = 0; i < x.operations.size(); ++i) {
    const Operation &o = kernel[x.operations[i]], &other = kernel[y.operations[i]];
    if (o.op != other.op || !are_same(o.operands, other.operands) ||
        !is_same(o.detail, other.detail)) {
      return false;
    }
    for (std::size_t r = 0; r < o.results.size(); ++r) {
      if (kernel.type_of(o.results[r]) != kernel.type_of(other.results[r])) return false;
      to[o.results[r]] = other.results[r];
    }
  }
  return are_same(x.yields, y.yields);
}

}  // namespace

// An inclusive scan, an exclusive one and the broadcast of their last value share all exchanges.
CollectiveLowering::Scanned& CollectiveLowering::scanned(const Values& states) {
  for (Scanned& known : scanned_) {
    if (known.region == builder_.region() && known.states == states && known.axes == info_.axes &&
        is_same(kernel_, known.merge, merge_)) {
      return known;
    }
  }
  scanned_.push_back({builder_.region(), states, info_.axes, merge_, {}, {}, {}, {}, {}});
  return scanned_.back();
}

Values CollectiveLowering::scan(const Operation& o) {
  const auto middle = o.operands.begin() + static_cast<std::ptrdiff_t>(o.results.size());
  const Values first(middle, o.operands.end());
  Scanned& known = scanned(Values(o.operands.begin(), middle));
  const Values out = plan_.stored.empty() ? scan_warp(known, first)
                     : plan_.by_warps     ? scan_warps(known, first)
                                          : scan_memory(known, first);
  if (!info_.exclusive) known.inclusive = out;
  return out;
}

Values CollectiveLowering::scan_warp(Scanned& known, const Values& first) {
  const std::int64_t stride = plan_.shuffled.empty() ? 1 : plan_.shuffled.front().stride;
  const Expr at = position(plan_.shuffled);
  if (known.all.empty()) {
    known.all = scan_lanes(known.states, at, plan_.width / stride, stride);
  }
  if (!info_.exclusive) return known.all;
  const Values before = shuffled(known.all, shuffle(ShuffleKind::up, stride));
  return selected(is_at_least(at, 1), before, first);
}

Values CollectiveLowering::scan_warps(Scanned& known, const Values& first) {
  const Expr at = position(plan_.shuffled);
  const Expr warp = position(plan_.stored);
  if (known.all.empty()) {
    known.all = scan_lanes(known.states, at, kWarp, 1);
    known.totals = scan_totals(known.all, at);
    known.before = from_lane(known.totals, sym::max(warp - 1, context_.constant(0)));
  }
  const Values warps_before = known.before;
  const ValueId has_warps_before = is_at_least(warp, 1);
  if (!info_.exclusive) {
    return selected(has_warps_before, merge(warps_before, known.all), known.all);
  }
  const Values before = shuffled(known.all, shuffle(ShuffleKind::up, 1));
  const Values in_warp = selected(has_warps_before, merge(warps_before, before), before);
  const Values at_start = selected(has_warps_before, warps_before, first);
  return selected(is_at_least(at, 1), in_warp, at_start);
}

// Lane w of each warp gets what the warps up to number w of its team make together.
Values CollectiveLowering::scan_totals(const Values& all, Expr lane) {
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
  return scan_lanes(totals, lane, warps, 1);
}

// Each thread takes all participants' states, one after the other.
Values CollectiveLowering::scan_memory(Scanned& known, const Values& first) {
  std::vector<ThreadAxis> members = plan_.shuffled;
  members.insert(members.end(), plan_.stored.begin(), plan_.stored.end());
  const std::int64_t count = plan_.threads / plan_.teams;
  const Expr at = position(members);
  const auto place = [&](Expr participant) {
    return (participant + vector_lane() * count) * plan_.teams + position(others(members));
  };
  if (known.parts.empty()) {
    for (std::size_t s = 0; s < known.states.size(); ++s) {
      store_scratch(info_.scratch[s], place(at), known.states[s]);
    }
    outside([&] { barrier(Scope::block); });
    for (std::int64_t p = 0; p < count; ++p) {
      Values part;
      for (const MemoryId scratch : info_.scratch) {
        part.push_back(load_scratch(scratch, place(context_.constant(p))));
      }
      known.parts.push_back(p == 0 ? part : merge(known.parts.back(), part));
    }
  }
  Values out = info_.exclusive ? first : known.parts[0];
  for (std::int64_t p = 1; p < count; ++p) {
    const auto taken = static_cast<std::size_t>(info_.exclusive ? p - 1 : p);
    out = selected(is_at_least(at, p), known.parts[taken], out);
  }
  return out;
}

// --- Broadcasts ----------------------------------------------------------------------------------

// The last value of a scan across warps, where this is it: every thread can tell.
Values CollectiveLowering::last_of_scan(ValueId value) {
  if (info_.from != plan_.threads / plan_.teams - 1) return {};
  for (const Scanned& known : scanned_) {
    const auto found = std::ranges::find(known.inclusive, value);
    if (known.region != builder_.region() || known.axes != info_.axes ||
        found == known.inclusive.end()) {
      continue;
    }
    const auto state = static_cast<std::size_t>(found - known.inclusive.begin());
    if (!known.parts.empty()) return {known.parts.back()[state]};
    std::int64_t warps = 1;
    for (const ThreadAxis& axis : plan_.stored) warps *= axis.extent;
    return from_lane({known.totals[state]}, context_.constant(warps - 1));
  }
  return {};
}

Values CollectiveLowering::broadcast(const Operation& o) {
  // The positions of who gives, by axis.
  std::int64_t rest = info_.from;
  std::vector<ThreadAxis> members = plan_.shuffled;
  members.insert(members.end(), plan_.stored.begin(), plan_.stored.end());
  Expr apart = context_.constant(0);  // from it, in threads
  for (const ThreadAxis& axis : members) {
    const Expr off = axis.variable - rest % axis.extent;
    apart = apart + off * axis.stride;
    rest /= axis.extent;
  }
  if (plan_.in_warp()) return from_lane(o.operands, sym::mod(lane() - apart, kWarp));
  if (Values last = last_of_scan(o.operands[0]); !last.empty()) return last;
  const Expr place = vector_lane() * plan_.teams + position(others(members));
  if_zero(position(members) - info_.from,
          [&] { store_scratch(info_.scratch[0], place, o.operands[0]); });
  outside([&] { barrier(Scope::block); });
  return {load_scratch(info_.scratch[0], place)};
}

}  // namespace inkle::kernel
