#include "schedule/expand_row_scan.h"

#include <algorithm>
#include <utility>

namespace inkle::schedule::expansion {

using kernel::Op;
using kernel::Shuffle;
using kernel::ShuffleKind;
using loop::Opcode;

// --- A team --------------------------------------------------------------------------------------

TeamScan::TeamScan(BlockExpansion& x, const RowTeam& team, GpuReducer& reducer)
    : b_(x.e.b), blocks_(x.blocks), at_(team.at()), reducer_(reducer) {}

ValueId TeamScan::join(ValueId a, ValueId b) const { return reducer_.merge({a}, {b})[0]; }

ValueId TeamScan::shuffle(ShuffleKind kind, ValueId value, std::int32_t by) const {
  const std::int32_t width = std::min(blocks_.rows().team, kWarp);
  const Shuffle info{kind, by, width, width == kWarp};
  return b_.operation(Op::shuffle, {value}, {b_.type_of(value)}, info)[0];
}

// Each of `count` lanes gets what it and those before it make.
ValueId TeamScan::scan_lanes(ValueId x, Expr lane, std::int32_t count) const {
  for (std::int32_t by = 1; by < count; by *= 2) {
    const ValueId before = shuffle(ShuffleKind::up, x, by);
    const ValueId joined = join(before, x);
    x = select(b_, compare(b_, Opcode::greater_equal, lane, by), joined, x);
  }
  return x;
}

TeamScan::Scanned TeamScan::warp(ValueId x, ValueId carry, Expr lane, std::int32_t width) const {
  const ValueId all = scan_lanes(x, lane, width);
  const ValueId is_first = compare(b_, Opcode::equal, lane, 0);
  const ValueId before = join(carry, shuffle(ShuffleKind::up, all, 1));
  const ValueId total = shuffle(ShuffleKind::from, all, width - 1);
  return {select(b_, is_first, carry, before), join(carry, total)};
}

TeamScan::Scanned TeamScan::team(ValueId x, ValueId carry, Expr side,
                                 kernel::MemoryId slots) const {
  if (blocks_.rows().team == 1) return {carry, join(carry, x)};
  if (blocks_.rows().team <= kWarp) return warp(x, carry, at_.thread, blocks_.rows().team);
  const ValueId all = scan_lanes(x, at_.lane, kWarp);
  const ValueId is_first = compare(b_, Opcode::equal, at_.lane, 0);
  const std::int32_t warps = blocks_.rows().team / kWarp;
  where(b_, compare(b_, Opcode::equal, at_.lane, kWarp - 1), [&] {
    b_.store(slots, {side, at_.warp}, all);
  });
  b_.barrier({});
  const ValueId own = b_.load(slots, {side, sym::mod(at_.lane, warps)});
  const ValueId totals = scan_lanes(own, at_.lane, warps);
  const Expr last = sym::max(at_.warp - 1, b_.context().constant(0));
  const ValueId warp_before = b_.index(last, DType::i32);
  const Shuffle from{ShuffleKind::from, 0, kWarp, true};
  const ValueId warps_before =
      b_.operation(Op::shuffle, {totals, warp_before}, {b_.type_of(totals)}, from)[0];
  const ValueId joined = join(carry, warps_before);
  const ValueId has_before = compare(b_, Opcode::greater_equal, at_.warp, 1);
  ValueId before = select(b_, has_before, joined, carry);
  const ValueId lanes_before = shuffle(ShuffleKind::up, all, 1);
  before = select(b_, is_first, before, join(before, lanes_before));
  return {before, join(carry, shuffle(ShuffleKind::from, totals, warps - 1))};
}

TeamScan::Scanned TeamScan::warps(ValueId x, ValueId none) const {
  const std::int64_t count = blocks_.threads / kWarp;
  const kernel::MemoryId slots = shared(b_, "s", b_.type_of(x).dtype, {count});
  where(b_, compare(b_, Opcode::equal, at_.lane, 0), [&] { b_.store(slots, {at_.warp}, x); });
  b_.barrier({});
  const Values both = unrolled(b_, count, {none, none}, [&](Expr warp, const Values& before) {
    const ValueId is_own = compare(b_, Opcode::equal, warp, at_.warp);
    const ValueId all = join(before[1], b_.load(slots, {warp}));
    return Values{select(b_, is_own, before[1], before[0]), all};
  });
  return {both[0], both[1]};
}

// --- A row ---------------------------------------------------------------------------------------

RowScan::RowScan(BlockExpansion& x, const RowTeam& team, const RowShape& shape, RowBodies& bodies,
                 const Stage& stage, std::size_t pass)
    : x_(x),
      b_(x.e.b),
      team_(team),
      shape_(shape),
      bodies_(bodies),
      stage_(stage),
      pass_(pass),
      reducer_(x.e.b, stage.reduce, stage.accumulator, DType::i32) {}

void RowScan::put_or_none(const RowPlace& place, const Elements& to, ValueId none) {
  b_.branch(
      less(b_, place.base, stage_.inner.front().extent),
      [&] {
        bodies_.put(stage_, pass_, place, to, none);
        return Values();
      },
      [&] {
        to.fill(none);
        return Values();
      });
}

ValueId RowScan::run_lanes(const Elements& own) {
  const Expr first = x_.context().constant(0);
  return own.in_order(1, {own.load(first)}, [&](Expr lane, const Values& before) {
    const Values running = reducer_.merge(before, {own.load(lane)});
    own.store(lane, running[0]);
    return running;
  })[0];
}

void RowScan::store(const RowPlace& place, const Elements& own, ValueId before) {
  RowBodies::Wanted wanted;
  wanted.stores = true;
  if_less(b_, place.base, stage_.inner.front().extent, [&] {
    bodies_.in_lanes(stage_, pass_, place, wanted, [&](BodyExpander& body, Expr lane, ValueId) {
      const ValueId running = reducer_.merge({before}, {own.load_lane(lane)})[0];
      for (const StageStore& store : stage_.stores) {
        body.store(store, running, x_.blocks.lanes > 1, 0);
      }
      return Values();
    });
  });
}

// In chunks of team * lanes: each thread scans its lanes, the team scans the threads' totals, and
// the chunk's total is carried to the next.
void RowScan::run() {
  const TeamScan scan(x_, team_, reducer_);
  const Elements own(b_, stage_.accumulator, x_.blocks.lanes);
  const Values none = reducer_.identity();
  kernel::MemoryId slots = kernel::kNone;
  if (x_.blocks.rows().team > kWarp) {
    slots = shared(b_, "s", stage_.accumulator, {2, x_.blocks.rows().team / kWarp});
  }
  const Expr n = stage_.inner.front().extent;
  const std::int64_t step = shape_.step();
  RowPlace place;
  place.usage.lasts = x_.blocks.lasting;
  place.skewed = shape_.is_skewed(stage_);
  place.part = place.chooses = shape_.is_ragged(stage_);
  kernel::Loop info = multiples(x_.context(), x_.context().constant(0),
                                place.skewed ? n + shape_.skew() : n, step, step);
  info.kind = kernel::LoopKind::rolled;
  b_.loop(std::move(info), none, [&](Expr start, const Values& carried) {
    place.base = start + shape_.first();
    if (place.skewed) place.base = place.base + shape_.shift();
    put_or_none(place, own, none[0]);
    const ValueId total = run_lanes(own);
    const Expr side = sym::mod(sym::floordiv(start, step), 2);
    const TeamScan::Scanned scanned = scan.team(total, carried[0], side, slots);
    store(place, own, scanned.before);
    return Values{scanned.carry};
  });
}

}  // namespace inkle::schedule::expansion
