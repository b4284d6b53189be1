// Scans of rows: running values, as the team goes along the row.
#include <algorithm>

#include "base/error.h"
#include "schedule/expand_rows.h"

namespace inkle::schedule::expansion {

using kernel::Op;
using kernel::Shuffle;
using kernel::ShuffleKind;
using loop::Opcode;

namespace {

constexpr std::int32_t kWarp = 32;

}  // namespace

// --- A warp --------------------------------------------------------------------------------------

ValueId RowExpander::shuffle(ShuffleKind kind, ValueId value, std::int32_t by) {
  const std::int32_t width = std::min(blocks_.team, kWarp);
  const Shuffle info{kind, by, width, width == kWarp};
  return b_.operation(Op::shuffle, {value}, {b_.type_of(value)}, info)[0];
}

ValueId RowExpander::is_at_least(Expr e, std::int64_t bound) {
  return logic(Opcode::greater_equal, {b_.index(e), b_.index(constant(bound))});
}

ValueId RowExpander::select(ValueId condition, ValueId a, ValueId b) {
  return b_.compute(Opcode::select, b_.type_of(a).dtype, {condition, a, b});
}

// Each of `count` lanes gets what it and those before it make.
ValueId RowExpander::scan_lanes(GpuReducer& reducer, ValueId x, Expr lane, std::int32_t count) {
  for (std::int32_t by = 1; by < count; by *= 2) {
    const ValueId before = shuffle(ShuffleKind::up, x, by);
    x = select(is_at_least(lane, by), reducer.merge({before}, {x})[0], x);
  }
  return x;
}

// --- A team --------------------------------------------------------------------------------------

// x: what a thread's elements make. Gives what comes before them, `carry` included, and `carry`
// with those of all threads: of a part of a warp, or all of it.
RowExpander::Scanned RowExpander::scan_warp(GpuReducer& reducer, ValueId x, ValueId carry,
                                            Expr lane, std::int32_t width) {
  const auto join = [&](ValueId a, ValueId b) { return reducer.merge({a}, {b})[0]; };
  const ValueId all = scan_lanes(reducer, x, lane, width);
  const ValueId is_first = logic(Opcode::equal, {b_.index(lane), b_.index(constant(0))});
  const ValueId before = join(carry, shuffle(ShuffleKind::up, all, 1));
  const ValueId total = shuffle(ShuffleKind::from, all, width - 1);
  return {select(is_first, carry, before), join(carry, total)};
}

// Likewise of a team.
RowExpander::Scanned RowExpander::scan_team(GpuReducer& reducer, ValueId x, ValueId carry,
                                            Expr side, kernel::MemoryId slots) {
  const auto join = [&](ValueId a, ValueId b) { return reducer.merge({a}, {b})[0]; };
  if (blocks_.team == 1) return {carry, join(carry, x)};
  if (blocks_.team <= kWarp) return scan_warp(reducer, x, carry, thread_, blocks_.team);
  const Expr lane = lane_;
  const ValueId all = scan_lanes(reducer, x, lane, kWarp);
  const ValueId is_first = logic(Opcode::equal, {b_.index(lane), b_.index(constant(0))});
  const std::int32_t warps = blocks_.team / kWarp;
  b_.branch(logic(Opcode::equal, {b_.index(lane), b_.index(constant(kWarp - 1))}), [&] {
    b_.store(slots, {side, warp_}, all);
    return Values();
  });
  b_.barrier({});
  const ValueId own = b_.load(slots, {side, sym::mod(lane, warps)});
  const ValueId totals = scan_lanes(reducer, own, lane, warps);
  const ValueId warp_before = b_.index(sym::max(warp_ - 1, constant(0)), DType::i32);
  const Shuffle from{ShuffleKind::from, 0, kWarp, true};
  const ValueId warps_before =
      b_.operation(Op::shuffle, {totals, warp_before}, {b_.type_of(totals)}, from)[0];
  ValueId before = select(is_at_least(warp_, 1), join(carry, warps_before), carry);
  const ValueId lanes_before = shuffle(ShuffleKind::up, all, 1);
  before = select(is_first, before, join(before, lanes_before));
  return {before, join(carry, shuffle(ShuffleKind::from, totals, warps - 1))};
}

// --- A row ---------------------------------------------------------------------------------------

// The elements of an access, or what changes nothing where there are none.
void RowExpander::put_or_none(const Stage& stage, std::size_t pass, const RowPlace& place,
                              const Elements& to, ValueId none) {
  b_.branch(
      less(x_, place.base, stage.inner.front().extent),
      [&] {
        put(stage, pass, place, to, none);
        return Values();
      },
      [&] {
        b_.vector(blocks_.lanes, blocks_.lanes, [&](Expr lane) {
          b_.store(element_of(to.memory, to.number, lane), none);
          return Values();
        });
        return Values();
      });
}

// Each lane becomes the running value of the thread; the last one.
ValueId RowExpander::scan_elements(GpuReducer& reducer, const Elements& own) {
  return in_order(1, {load(own, constant(0))}, [&](Expr lane, const Values& before) {
    const Values running = reducer.merge(before, {load(own, lane)});
    b_.store(own.memory, {own.number, lane}, running[0]);
    return running;
  })[0];
}

void RowExpander::store_running(const Stage& stage, std::size_t pass, const RowPlace& place,
                                const Elements& own, GpuReducer& reducer, ValueId before) {
  Wanted wanted;
  wanted.stores = true;
  (void)if_below(place.base, stage.inner.front().extent, {}, [&] {
    in_lanes(stage, pass, place, wanted, [&](BodyExpander& body, Expr lane, ValueId) {
      const ValueId x = b_.load(element_of(own.memory, own.number, lane));
      const ValueId running = reducer.merge({before}, {x})[0];
      for (const StageStore& store : stage.stores) {
        body.store(store, running, blocks_.lanes > 1, 0);
      }
      return Values();
    });
    return Values();
  });
}

void RowExpander::check_scan(std::size_t pass) const {
  const bool keeps = std::any_of(keep_.kept.begin(), keep_.kept.end(),
                                 [&](const KeptValue& k) { return k.first_pass == pass; });
  INKLE_CHECK(!keeps && keep_.known[pass].empty(), "kernel {}: a scan of a row that is kept",
              x_.e.scheduled.name);
}

// In chunks of team * lanes: each thread scans its lanes, the team scans the threads' totals, and
// the chunk's total is carried to the next.
void RowExpander::scan(const Stage& stage, std::size_t pass) {
  check_scan(pass);
  if (blocks_.chunk != 0) return scan_chunk(stage, pass);
  GpuReducer reducer(b_, stage.reduce, stage.accumulator, DType::i32);
  const Elements own = elements(stage.accumulator);
  const Values none = reducer.identity();
  kernel::MemoryId slots = kernel::kNone;
  if (blocks_.team > kWarp) {
    kernel::Memory memory;
    memory.name = fmt::format("s{}", b_.kernel().memories.size());
    memory.space = kernel::Space::shared;
    memory.dtype = stage.accumulator;
    memory.shape = {constant(2), constant(blocks_.team / kWarp)};
    memory.alignment = 16;
    slots = b_.memory(std::move(memory));
  }
  const Expr n = stage.inner.front().extent;
  RowPlace place;
  place.usage.lasts = blocks_.lasting;
  place.skewed = is_skewed(stage);
  place.part = place.chooses = is_ragged(stage);
  kernel::Loop info =
      multiples(x_.context(), constant(0), place.skewed ? n + skew_ : n, step(), step());
  info.kind = kernel::LoopKind::rolled;
  b_.loop(std::move(info), none, [&](Expr start, const Values& carried) {
    place.base = start + position_ * std::int64_t{blocks_.lanes};
    if (place.skewed) place.base = place.base + aligned_ - start_;
    put_or_none(stage, pass, place, own, none[0]);
    const ValueId total = scan_elements(reducer, own);
    const Expr side = sym::mod(sym::floordiv(start, step()), 2);
    const Scanned scanned = scan_team(reducer, total, carried[0], side, slots);
    store_running(stage, pass, place, own, reducer, scanned.before);
    return Values{scanned.carry};
  });
}

}  // namespace inkle::schedule::expansion
