#include "kernel/lower_collectives_scan.h"

#include <algorithm>
#include <bit>
#include <unordered_map>

namespace inkle::kernel {

using loop::Opcode;

namespace {

class ScanLowering {
 public:
  ScanLowering(CollectiveEmitter& emit, CollectiveScratch& scratch,
               const LoweredCollective& collective, std::vector<ScannedStates>& known)
      : emit_(emit),
        scratch_(scratch),
        builder_(emit.builder()),
        collective_(collective),
        scanned_(known) {}
  Values scan(const Operation& o);
  Values broadcast(const Operation& o);

 private:
  ScannedStates& scanned(const Values& states);
  Values scan_lanes(const Values& states, Expr position, std::int64_t count, std::int64_t stride);
  Values scan_warp(ScannedStates& known, const Values& first);
  Values scan_warps(ScannedStates& known, const Values& first);
  Values scan_totals(const Values& all, Expr lane);
  Values scan_memory(ScannedStates& known, const Values& first);
  Values last_of_scan(ValueId value);
  Values selected(ValueId condition, const Values& a, const Values& b);
  ValueId is_at_least(Expr e, std::int64_t bound);

  CollectiveEmitter& emit_;
  CollectiveScratch& scratch_;
  Builder& builder_;
  const LoweredCollective& collective_;
  std::vector<ScannedStates>& scanned_;
};

}  // namespace

Values ScanLowering::selected(ValueId condition, const Values& a, const Values& b) {
  Values out;
  for (std::size_t s = 0; s < a.size(); ++s) {
    out.push_back(
        builder_.compute(Opcode::select, builder_.type_of(a[s]).dtype, {condition, a[s], b[s]}));
  }
  return out;
}

ValueId ScanLowering::is_at_least(Expr e, std::int64_t bound) {
  return builder_.compute(Opcode::greater_equal, DType::boolean,
                          {builder_.index(e), builder_.integer(DType::i64, bound)});
}

// An inclusive scan over `count` lanes, `stride` apart.
Values ScanLowering::scan_lanes(const Values& states, Expr position, std::int64_t count,
                                std::int64_t stride) {
  Values out = states;
  for (std::int64_t by = 1; by < count; by *= 2) {
    const Values before = emit_.shuffled(out, collective_.shuffle(ShuffleKind::up, by * stride));
    const Values joined = emit_.merge(collective_.merge, before, out);
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
ScannedStates& ScanLowering::scanned(const Values& states) {
  for (ScannedStates& known : scanned_) {
    if (known.region == builder_.region() && known.states == states &&
        known.axes == collective_.info.axes &&
        is_same(builder_.kernel(), known.merge, collective_.merge)) {
      return known;
    }
  }
  scanned_.push_back(
      {builder_.region(), states, collective_.info.axes, collective_.merge, {}, {}, {}, {}, {}});
  return scanned_.back();
}

Values ScanLowering::scan(const Operation& o) {
  const auto middle = o.operands.begin() + static_cast<std::ptrdiff_t>(o.results.size());
  const Values first(middle, o.operands.end());
  ScannedStates& known = scanned(Values(o.operands.begin(), middle));
  const Values out = collective_.plan.stored.empty() ? scan_warp(known, first)
                     : collective_.plan.by_warps     ? scan_warps(known, first)
                                                     : scan_memory(known, first);
  if (!collective_.info.exclusive) known.inclusive = out;
  return out;
}

Values ScanLowering::scan_warp(ScannedStates& known, const Values& first) {
  const std::int64_t stride =
      collective_.plan.shuffled.empty() ? 1 : collective_.plan.shuffled.front().stride;
  const Expr at = emit_.position(collective_.plan.shuffled);
  if (known.all.empty()) {
    known.all = scan_lanes(known.states, at, collective_.plan.width / stride, stride);
  }
  if (!collective_.info.exclusive) return known.all;
  const Values before = emit_.shuffled(known.all, collective_.shuffle(ShuffleKind::up, stride));
  return selected(is_at_least(at, 1), before, first);
}

Values ScanLowering::scan_warps(ScannedStates& known, const Values& first) {
  const Expr at = emit_.position(collective_.plan.shuffled);
  const Expr warp = emit_.position(collective_.plan.stored);
  if (known.all.empty()) {
    known.all = scan_lanes(known.states, at, kLanesOfWarp, 1);
    known.totals = scan_totals(known.all, at);
    known.before = emit_.from_lane(collective_, known.totals,
                                   sym::max(warp - 1, builder_.context().constant(0)));
  }
  const Values warps_before = known.before;
  const ValueId has_warps_before = is_at_least(warp, 1);
  if (!collective_.info.exclusive) {
    return selected(has_warps_before, emit_.merge(collective_.merge, warps_before, known.all),
                    known.all);
  }
  const Values before = emit_.shuffled(known.all, collective_.shuffle(ShuffleKind::up, 1));
  const Values in_warp =
      selected(has_warps_before, emit_.merge(collective_.merge, warps_before, before), before);
  const Values at_start = selected(has_warps_before, warps_before, first);
  return selected(is_at_least(at, 1), in_warp, at_start);
}

// Lane w of each warp gets the inclusive total of its team's warps up to number w.
Values ScanLowering::scan_totals(const Values& all, Expr lane) {
  std::int64_t warps = 1;
  for (const ThreadAxis& axis : collective_.plan.stored) warps *= axis.extent;
  Expr own = emit_.vector_lane() * (collective_.plan.threads / kLanesOfWarp);
  for (const ThreadAxis& axis : emit_.threads()) {
    if (axis.stride >= kLanesOfWarp) own = own + axis.variable * (axis.stride / kLanesOfWarp);
  }
  emit_.if_zero(kLanesOfWarp - 1 - lane, [&] {
    for (std::size_t s = 0; s < all.size(); ++s)
      scratch_.store(collective_.info.scratch[s], own, all[s]);
  });
  emit_.block_barrier();
  Expr place = own;
  std::int64_t inner = 1;
  for (const ThreadAxis& axis : collective_.plan.stored) {
    const std::int64_t stride = axis.stride / kLanesOfWarp;
    place =
        place - axis.variable * stride + sym::mod(sym::floordiv(lane, inner), axis.extent) * stride;
    inner *= axis.extent;
  }
  Values totals;
  for (const MemoryId scratch : collective_.info.scratch)
    totals.push_back(scratch_.load(scratch, place));
  return scan_lanes(totals, lane, warps, 1);
}

// Each thread takes all participants' states, one after the other.
Values ScanLowering::scan_memory(ScannedStates& known, const Values& first) {
  const std::vector<ThreadAxis> members = collective_.members();
  const std::int64_t count = collective_.plan.threads / collective_.plan.teams;
  const Expr at = emit_.position(members);
  const auto place = [&](Expr participant) {
    return (participant + emit_.vector_lane() * count) * collective_.plan.teams +
           emit_.position(emit_.others(members));
  };
  if (known.parts.empty()) {
    for (std::size_t s = 0; s < known.states.size(); ++s) {
      scratch_.store(collective_.info.scratch[s], place(at), known.states[s]);
    }
    emit_.block_barrier();
    for (std::int64_t p = 0; p < count; ++p) {
      Values part;
      for (const MemoryId scratch : collective_.info.scratch) {
        part.push_back(scratch_.load(scratch, place(builder_.context().constant(p))));
      }
      known.parts.push_back(p == 0 ? part
                                   : emit_.merge(collective_.merge, known.parts.back(), part));
    }
  }
  Values out = collective_.info.exclusive ? first : known.parts[0];
  for (std::int64_t p = 1; p < count; ++p) {
    const auto taken = static_cast<std::size_t>(collective_.info.exclusive ? p - 1 : p);
    out = selected(is_at_least(at, p), known.parts[taken], out);
  }
  return out;
}

// --- Broadcasts ----------------------------------------------------------------------------------

// The last value of a scan across warps, where this is it: every thread can tell.
Values ScanLowering::last_of_scan(ValueId value) {
  if (collective_.info.from != collective_.plan.threads / collective_.plan.teams - 1) return {};
  for (const ScannedStates& known : scanned_) {
    const auto found = std::ranges::find(known.inclusive, value);
    if (known.region != builder_.region() || known.axes != collective_.info.axes ||
        found == known.inclusive.end()) {
      continue;
    }
    const auto state = static_cast<std::size_t>(found - known.inclusive.begin());
    if (!known.parts.empty()) return {known.parts.back()[state]};
    std::int64_t warps = 1;
    for (const ThreadAxis& axis : collective_.plan.stored) warps *= axis.extent;
    return emit_.from_lane(collective_, {known.totals[state]},
                           builder_.context().constant(warps - 1));
  }
  return {};
}

Values ScanLowering::broadcast(const Operation& o) {
  // The positions of the source of a broadcast, by axis.
  std::int64_t rest = collective_.info.from;
  const std::vector<ThreadAxis> members = collective_.members();
  Expr apart = builder_.context().constant(0);  // from it, in threads
  for (const ThreadAxis& axis : members) {
    const Expr off = axis.variable - rest % axis.extent;
    apart = apart + off * axis.stride;
    rest /= axis.extent;
  }
  if (collective_.plan.in_warp())
    return emit_.from_lane(collective_, o.operands, sym::mod(emit_.lane() - apart, kLanesOfWarp));
  if (Values last = last_of_scan(o.operands[0]); !last.empty()) return last;
  const Expr place =
      emit_.vector_lane() * collective_.plan.teams + emit_.position(emit_.others(members));
  emit_.if_zero(emit_.position(members) - collective_.info.from,
                [&] { scratch_.store(collective_.info.scratch[0], place, o.operands[0]); });
  emit_.block_barrier();
  return {scratch_.load(collective_.info.scratch[0], place)};
}

Values lower_scan(CollectiveEmitter& emit, CollectiveScratch& scratch,
                  const LoweredCollective& collective, const Operation& o,
                  std::vector<ScannedStates>& known) {
  return ScanLowering(emit, scratch, collective, known).scan(o);
}

Values lower_broadcast(CollectiveEmitter& emit, CollectiveScratch& scratch,
                       const LoweredCollective& collective, const Operation& o,
                       std::vector<ScannedStates>& known) {
  return ScanLowering(emit, scratch, collective, known).broadcast(o);
}

}  // namespace inkle::kernel
