#include "schedule/expand_row_loops.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "sym/symbols.h"

namespace inkle::schedule::expansion {

using loop::Opcode;
using loop::Val;

namespace {

DType position_type(std::int64_t most) {
  return most <= std::numeric_limits<std::int32_t>::max() ? DType::i32 : DType::i64;
}

}  // namespace

kernel::Loop multiples(sym::Context& context, Expr begin, Expr end, std::int64_t step,
                       std::int64_t divisor) {
  kernel::Loop info;
  info.begin = begin;
  info.end = end;
  info.step = context.constant(step);
  sym::SymbolInfo facts = kernel::facts_of(info);
  facts.divisor = std::max(facts.divisor, divisor);
  facts.range.low = std::max(facts.range.low, sym::bounds(begin).low);
  info.variable = sym::fresh(context, facts);
  return info;
}

RowLoops::RowLoops(BlockExpansion& x, const RowTeam& team, const RowShape& shape)
    : x_(x), b_(x.e.b), blocks_(x.blocks), team_(team), shape_(shape) {}

// Lanes are masked only where a row begins or ends.
Values RowLoops::whole_or_part(const Stage& stage, const RowPlace& place, const Values& carried,
                               const AtPlace& f) const {
  if (!shape_.is_ragged(stage)) return f(place, carried);
  RowPlace part = place;
  part.part = true;
  return b_.branch(
      shape_.whole(stage, place), [&] { return f(place, carried); },
      [&] { return f(part, carried); });
}

Values RowLoops::kept(const Stage& stage, const Usage& usage, const Values& carried,
                      const AtPlace& f) const {
  const Expr n = stage.inner.front().extent;
  const std::int64_t count = shape_.accesses_of(stage);
  RowPlace place;
  place.usage = usage;
  place.skewed = shape_.is_skewed(stage);
  const auto at = [&](Expr number, const Values& before) {
    place.number = number;
    place.base = shape_.first() + number * shape_.step();
    if (place.skewed) place.base = place.base + shape_.shift();
    const auto access = [&] { return whole_or_part(stage, place, before, f); };
    if (!place.skewed && *n.constant() % shape_.step() == 0) return access();
    return if_less(b_, place.base, n, before, access);
  };
  if (count == 1) return at(x_.context().constant(0), carried);
  return unrolled(b_, count, carried, at);
}

Values RowLoops::looped(const Stage& stage, const Values& carried, const AtPlace& f) {
  const Expr n = stage.inner.front().extent;
  const bool last = stage.kind == StageKind::pointwise && !stage.stores.empty();
  RowPlace place;
  place.skewed = shape_.is_skewed(stage);
  place.usage.lasts = blocks_.lasting;
  place.usage.leaves = last && reads_twice_;
  place.usage.streams =
      stage.kind == StageKind::reduction ? !is_read_again(x_, stage) : last && reads_twice_;
  reads_twice_ = reads_twice_ || is_read_again(x_, stage);
  const Loads loads = find_loads(stage);
  if (!loads.empty()) {
    return shape_.is_ragged(stage) ? ragged(stage, loads, place, carried, f)
                                   : batched(stage, loads, place, carried, f);
  }
  place.usage.streams = false;
  kernel::Loop info = multiples(x_.context(), shape_.first(), place.skewed ? n + shape_.skew() : n,
                                shape_.step(), blocks_.lanes);
  info.unroll = blocks_.rows().unroll;
  return b_.loop(std::move(info), carried, [&](Expr at, const Values& before) {
    place.base = place.skewed ? at + shape_.shift() : at;
    return whole_or_part(stage, place, before, f);
  });
}

// --- Several accesses in flight ------------------------------------------------------------------

// Loads of the stage that can be in flight together.
RowLoops::Loads RowLoops::find_loads(const Stage& stage) const {
  Loads loads;
  if (blocks_.rows().unroll <= 1) return loads;
  for (Val v = 0; v < stage.body.instructions.size(); ++v) {
    if (!shape_.is_packed(stage, v)) continue;
    loads.push_back(
        {v, registers(b_, "b", stage.body[v].dtype, {blocks_.rows().unroll, blocks_.lanes})});
  }
  return loads;
}

Values RowLoops::batched(const Stage& stage, const Loads& loads, const RowPlace& place,
                         const Values& carried, const AtPlace& f) const {
  const Expr n = stage.inner.front().extent;
  const std::int64_t all = shape_.step() * blocks_.rows().unroll;
  const auto size = n.constant();
  kernel::Loop info = multiples(x_.context(), shape_.first(), n, all, blocks_.lanes);
  return b_.loop(std::move(info), carried, [&](Expr start, const Values& before) {
    const Expr end = size && *size % all == 0 ? Expr() : n;
    return in_flight(stage, loads, start, end, place, before, f);
  });
}

// `unroll` accesses from `first` on: their loads, then what is done with them. Those at `end` and
// beyond do not exist.
Values RowLoops::in_flight(const Stage& stage, const Loads& loads, Expr first, Expr end,
                           const RowPlace& place, const Values& carried, const AtPlace& f) const {
  RowPlace at = place;
  at.loaded = &loads;
  const auto each = [&](const Values& states, const AtPlace& access) {
    return unrolled(b_, blocks_.rows().unroll, states, [&](Expr u, const Values& before) {
      at.flight = u;
      at.base = first + u * shape_.step();
      const auto inside = [&] { return access(at, before); };
      return end.is_null() ? inside() : if_less(b_, at.base, end, before, inside);
    });
  };
  (void)each({}, [&](const RowPlace& access, const Values&) {
    shape_.load(stage, access, access.flight, loads);
    return Values();
  });
  return each(carried, f);
}

// --- Ragged rows ---------------------------------------------------------------------------------

// Rows not divisible by the vector width: the first thread has the elements before the first whole
// access, the last one those after the last, and between them lanes are not masked.
Values RowLoops::ragged(const Stage& stage, const Loads& loads, const RowPlace& place,
                        const Values& carried, const AtPlace& f) const {
  const Expr none = x_.context().constant(0);
  Values states = carried;
  RowShape::Rest row{none, none};
  if (place.skewed) {
    RowPlace part = place;
    part.part = true;
    part.base = shape_.shift();
    const ValueId odd = compare(b_, Opcode::not_equal, shape_.skew(), 0);
    states = where(b_, logic(b_, Opcode::bit_and, {team_.is_first_thread(), odd}), states,
                   [&] { return f(part, states); });
    row = shape_.after_skew();
  }
  states = whole_accesses(stage, loads, place, row, states, f);
  return where(b_, team_.is_last_thread(), states,
               [&] { return ragged_end(stage, place, row, states, f); });
}

Values RowLoops::whole_accesses(const Stage& stage, const Loads& loads, const RowPlace& place,
                                const RowShape::Rest& row, Values states, const AtPlace& f) const {
  const Expr n = stage.inner.front().extent - row.head;
  const std::int64_t lanes = blocks_.lanes;
  const std::int64_t step = shape_.step();
  const std::int64_t all = step * blocks_.rows().unroll;
  const std::int64_t most = above(sym::bounds(n).high, all);
  Expr first = shape_.first();
  const Expr end = n - (step * (blocks_.rows().unroll - 1) + lanes - 1);
  if (sym::less_equal(end, x_.context().constant(0)) != true) {
    // Where the next loop begins is carried along.
    const DType type = position_type(most);
    states.push_back(b_.index(first, type));
    kernel::Loop several = multiples(x_.context(), first, end, all, lanes);
    states = b_.loop(std::move(several), states, [&](Expr start, const Values& before) {
      Values after = in_flight(stage, loads, start + row.shift, {}, place,
                               Values(before.begin(), before.end() - 1), f);
      after.push_back(b_.index(start + all, type));
      return after;
    });
    first = bound(b_, b_.cast(states.back(), DType::i64), {0, most}, lanes);
    states.pop_back();
  }
  kernel::Loop one = multiples(x_.context(), first, n - (lanes - 1), step, lanes);
  return b_.loop(std::move(one), states, [&](Expr start, const Values& before) {
    RowPlace whole = place;
    whole.base = start + row.shift;
    return f(whole, before);
  });
}

Values RowLoops::ragged_end(const Stage& stage, const RowPlace& place, const RowShape::Rest& row,
                            const Values& states, const AtPlace& f) const {
  const Expr n = stage.inner.front().extent;
  const std::int64_t lanes = blocks_.lanes;
  Expr at = sym::floordiv(n - row.head, lanes) * lanes;
  if (!at.is_constant()) {
    const std::int64_t most = sym::bounds(n).high;
    const bool reaches = sym::bounds(n).low >= lanes - 1;  // the first whole access
    const DType type = position_type(most);
    const ValueId length = b_.index(n - row.head, type);
    const ValueId rounded = op(b_, Opcode::bit_and, {length, b_.integer(type, -lanes)});
    at = bound(b_, b_.cast(rounded, DType::i64), {reaches ? 0 : -lanes, most}, lanes);
  }
  RowPlace part = place;
  part.part = true;
  part.base = at + row.shift;
  return if_less(b_, x_.context().constant(-1), at, states, [&] {
    return if_less(b_, part.base, n, states, [&] { return f(part, states); });
  });
}

}  // namespace inkle::schedule::expansion
