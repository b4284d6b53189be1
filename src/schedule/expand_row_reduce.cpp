#include "schedule/expand_row_reduce.h"

#include <limits>

namespace inkle::schedule::expansion {

using loop::Opcode;
using loop::ReduceOp;

namespace {

constexpr std::int64_t kNowhere = std::numeric_limits<std::int32_t>::max();

bool has_position(ReduceOp op) { return op == ReduceOp::argmin || op == ReduceOp::argmax; }

bool is_wide_extent(Expr extent) { return sym::bounds(extent).high > kNowhere; }

// Whether x is the value, or a NaN.
ValueId is_found(kernel::Builder& b, ValueId x, ValueId value) {
  const ValueId found = logic(b, Opcode::equal, {x, value});
  if (!abi::is_float(b.type_of(x).dtype)) return found;
  return logic(b, Opcode::bit_or, {found, logic(b, Opcode::is_nan, {x})});
}

}  // namespace

RowReductions::RowReductions(BlockExpansion& x, const RowTeam& team, const RowShape& shape,
                             RowBodies& bodies)
    : x_(x), b_(x.e.b), blocks_(x.blocks), team_(team), shape_(shape), bodies_(bodies) {}

void RowReductions::define(std::uint32_t row, ValueId value) {
  x_.e.rows[row] = {{b_.cast(value, x_.loops().rows.at(row))}, false};
}

void RowReductions::define(const PreparedStage& prepared, const Values& results) {
  for (std::size_t r = 0; r < results.size(); ++r) define(prepared.rows[r], results[r]);
}

Elements RowReductions::elements(DType dtype, std::int64_t accesses) const {
  return {b_, dtype, blocks_.lanes, accesses};
}

Values RowReductions::in_row(const Stage& stage, const RowPlace& place, const Elements& own,
                             const Values& carried, const Elements::OfLane& f) const {
  return own.in_order(0, carried, [&](Expr lane, const Values& before) {
    if (!place.part) return f(lane, before);
    return where(b_, shape_.active(stage, place, lane), before, [&] { return f(lane, before); });
  });
}

// --- Reductions ----------------------------------------------------------------------------------

void RowReductions::reduce(const PreparedStage& prepared, std::size_t pass, int part) {
  const Stage& stage = prepared.stage;
  if (stage.inner.empty()) return single(prepared);
  if (x_.loops().sequential != 0 && stage.reduce == ReduceOp::sum) return sums(prepared, pass);
  if (stage.reduce == ReduceOp::welford) {
    return blocks_.rows().keep ? moments_kept(prepared, pass, part == 1) : moments(prepared, pass);
  }
  if (stage.reduce == ReduceOp::online_softmax) return exponentials(prepared, pass);
  if (!has_position(stage.reduce)) return simple(prepared, pass);
  if (blocks_.rows().keep) return search(prepared, pass);
  best(prepared, pass);
}

// Of one element, by each thread for itself.
void RowReductions::single(const PreparedStage& prepared) {
  const Stage& stage = prepared.stage;
  GpuReducer reducer(b_, stage.reduce, stage.accumulator, DType::i32);
  BodyExpander body(x_.e, stage.body, {});
  const ValueId x = b_.cast(body.value(stage.body.yields[0], 0), reducer.element());
  const ValueId position =
      reducer.has_position() ? b_.integer(DType::i32, 0) : ValueId{kernel::kNone};
  define(prepared, reducer.results(reducer.step(reducer.identity(), x, position)));
}

void RowReductions::simple(const PreparedStage& prepared, std::size_t pass) {
  const Stage& stage = prepared.stage;
  GpuReducer reducer(b_, stage.reduce, stage.accumulator, DType::i32);
  const Elements own = elements(reducer.element());
  const Values states = bodies_.along(
      stage, pass, reducer.identity(), [&](const RowPlace& place, const Values& carried) {
        bodies_.put(stage, pass, place, own);
        return in_row(stage, place, own, carried, [&](Expr lane, const Values& before) {
          return reducer.step(before, own.load(lane), kernel::kNone);
        });
      });
  define(prepared.rows[0], reducer.results(team_.join(reducer, states))[0]);
}

// The best of the lanes first, then whether it is better than what was before.
void RowReductions::best(const PreparedStage& prepared, std::size_t pass) {
  const Stage& stage = prepared.stage;
  const bool is_max = stage.reduce == ReduceOp::argmax;
  const bool is_wide = is_wide_extent(stage.inner.front().extent);
  const DType position = is_wide ? DType::i64 : DType::i32;
  GpuReducer reducer(b_, stage.reduce, stage.accumulator, position);
  const Elements own = elements(reducer.element());
  const ValueId worst = extreme(b_, reducer.element(), !is_max);
  const auto add = [&](const RowPlace& place, const Values& carried) -> Values {
    bodies_.put(stage, pass, place, own, worst);
    if (blocks_.lanes == 1) {
      return reducer.step(carried, own.load(constant(0)), b_.index(place.base, position));
    }
    const Opcode better = is_max ? Opcode::max : Opcode::min;
    const ValueId top =
        own.in_order(1, {own.load(constant(0))}, [&](Expr lane, const Values& before) {
          return Values{op(b_, better, {before[0], own.load(lane)})};
        })[0];
    const Opcode not_better = is_max ? Opcode::less_equal : Opcode::greater_equal;
    const ValueId differs = logic(b_, Opcode::bit_not, {logic(b_, not_better, {top, carried[0]})});
    const ValueId beats = logic(b_, Opcode::bit_and, {differs, reducer.beats(top, carried[0])});
    return where(b_, beats, carried, [&] {
      const ValueId first = first_of(own, top, b_.integer(position, 0),
                                     [&](Expr lane) { return b_.index(lane, position); });
      return Values{top, op(b_, Opcode::add, {b_.index(place.base, position), first})};
    });
  };
  const Values states = bodies_.along(stage, pass, reducer.identity(), add);
  define(prepared.rows[0], reducer.results(team_.join(reducer, states))[0]);
}

// Of the first lane that has this value or a NaN: its position; else `none`.
ValueId RowReductions::first_of(const Elements& own, ValueId value, ValueId none,
                                const std::function<ValueId(Expr lane)>& position) const {
  return own.in_order(0, {none}, [&](Expr reversed, const Values& before) {
    const Expr lane = constant(blocks_.lanes - 1) - reversed;
    const ValueId found = is_found(b_, own.load(lane), value);
    return Values{select(b_, found, position(lane), before[0])};
  })[0];
}

// The extreme value first, all of the row kept; then the threads that have it search its position.
void RowReductions::search(const PreparedStage& prepared, std::size_t pass) {
  const Stage& stage = prepared.stage;
  const bool is_max = stage.reduce == ReduceOp::argmax;
  const std::int64_t count = shape_.accesses_of(stage);
  GpuReducer values(b_, is_max ? ReduceOp::max : ReduceOp::min, stage.accumulator, DType::i32);
  GpuReducer places(b_, ReduceOp::min, DType::i32, DType::i32);
  const Elements all = elements(values.element(), count);
  const ValueId worst = values.identity()[0];
  const auto each = [&](const Values& carried, const Elements::OfLane& f) {
    if (count == 1) return f(constant(0), carried);
    return unrolled(b_, count, carried, f);
  };
  if (shape_.is_skewed(stage) || *stage.inner.front().extent.constant() % shape_.step() != 0) {
    each({}, [&](Expr k, const Values&) {
      all.at(k).fill(worst);
      return Values();
    });
  }
  const auto put = [&](const RowPlace& place, const Values&) {
    bodies_.put(stage, pass, place, all.at(place.number), worst);
    return Values();
  };
  (void)bodies_.along(stage, pass, {}, put, true);
  const Values own = each({all.load(constant(0))}, [&](Expr k, const Values& before) {
    return all.in_order(0, before, [&](Expr lane, const Values& top) {
      return values.merge(top, {all.at(k).load(lane)});
    });
  });
  const ValueId best = team_.join(values, own)[0];
  const ValueId none = b_.integer(DType::i32, kNowhere);
  const Expr first = shape_.is_skewed(stage) ? shape_.first() - shape_.skew() : shape_.first();
  const Values at = where(b_, is_found(b_, own[0], best), {none}, [&] {
    return each({none}, [&](Expr reversed, const Values& before) {
      const Expr number = constant(count - 1) - reversed;
      return Values{first_of(all.at(number), best, before[0], [&](Expr lane) {
        return b_.index(first + number * shape_.step() + lane, DType::i32);
      })};
    });
  });
  const ValueId place = team_.join(places, at)[0];
  const ValueId nowhere = logic(b_, Opcode::equal, {place, none});
  const ValueId wide = b_.cast(place, DType::i64);
  define(prepared.rows[0], select(b_, nowhere, b_.integer(DType::i64, 0), wide));
}

// The mean in one loop over what is kept, the squares of the deviations in another.
void RowReductions::moments_kept(const PreparedStage& prepared, std::size_t pass, bool is_second) {
  const Stage& stage = prepared.stage;
  const DType dtype = stage.accumulator;
  GpuReducer reducer(b_, ReduceOp::sum, dtype, DType::i32);
  const Elements own = elements(dtype);
  ValueId mean = kernel::kNone;
  if (is_second) mean = b_.cast(x_.e.rows[prepared.rows[0]].copies[0], dtype);
  const Values states = bodies_.along(
      stage, pass, reducer.identity(), [&](const RowPlace& place, const Values& carried) {
        bodies_.put(stage, pass, place, own);
        return in_row(stage, place, own, carried, [&](Expr lane, const Values& before) {
          const ValueId x = own.load(lane);
          if (!is_second) return reducer.step(before, x, kernel::kNone);
          const ValueId d = op(b_, Opcode::sub, {x, mean});
          return Values{op(b_, Opcode::fma, {d, d, before[0]})};
        });
      });
  ValueId result = team_.join(reducer, states)[0];
  if (!is_second) {
    const auto count = static_cast<double>(*stage.inner.front().extent.constant());
    result = op(b_, Opcode::div, {result, b_.real(dtype, count)});
  }
  define(prepared.rows[is_second ? 1 : 0], result);
}

// One pass: the moments of neighbouring lanes first, then merged into the accumulator.
void RowReductions::moments(const PreparedStage& prepared, std::size_t pass) {
  const Stage& stage = prepared.stage;
  const DType dtype = stage.accumulator;
  GpuReducer reducer(b_, ReduceOp::welford, dtype, DType::i32);
  const Elements own = elements(dtype);
  const auto real = [&](double value) { return b_.real(dtype, value); };
  const auto of_lanes = [&]() -> Values {
    const auto lanes = static_cast<double>(blocks_.lanes);
    const ValueId sum = own.in_order(0, {real(0)}, [&](Expr lane, const Values& before) {
      return Values{op(b_, Opcode::add, {before[0], own.load(lane)})};
    })[0];
    const ValueId mean = op(b_, Opcode::mul, {sum, real(1 / lanes)});
    const ValueId squares = own.in_order(0, {real(0)}, [&](Expr lane, const Values& before) {
      const ValueId d = op(b_, Opcode::sub, {own.load(lane), mean});
      return Values{op(b_, Opcode::add, {before[0], op(b_, Opcode::mul, {d, d})})};
    })[0];
    return {real(lanes), mean, squares};
  };
  const auto add = [&](const RowPlace& place, const Values& carried) {
    bodies_.put(stage, pass, place, own);
    const Elements::OfLane one = [&](Expr lane, const Values& before) {
      return reducer.merge(before, {real(1), own.load(lane), real(0)});
    };
    if (blocks_.lanes == 1) return one(constant(0), carried);
    return reducer.merge(
        carried, place.part ? in_row(stage, place, own, reducer.identity(), one) : of_lanes());
  };
  const Values states = bodies_.along(stage, pass, reducer.identity(), add);
  define(prepared, reducer.results(team_.join(reducer, states)));
}

// While a thread adds, its sum is of exp(x - base), the base a maximum of before that is at most 4
// below the present one: raising it with every new maximum would keep a warp busy with that.
void RowReductions::exponentials(const PreparedStage& prepared, std::size_t pass) {
  constexpr double kMostAbove = 4;
  const Stage& stage = prepared.stage;
  const DType dtype = stage.accumulator;
  GpuReducer reducer(b_, ReduceOp::online_softmax, dtype, DType::i32);
  const Elements own = elements(dtype);
  const ValueId lowest = extreme(b_, reducer.element(), false);
  const auto add = [&](const RowPlace& place, const Values& carried) -> Values {
    bodies_.put(stage, pass, place, own, lowest);
    const ValueId top = own.in_order(0, {carried[0]}, [&](Expr lane, const Values& before) {
      return Values{op(b_, Opcode::max, {before[0], own.load(lane)})};
    })[0];
    const ValueId limit = op(b_, Opcode::add, {carried[2], b_.real(dtype, kMostAbove)});
    const ValueId far = logic(b_, Opcode::bit_not, {logic(b_, Opcode::less_equal, {top, limit})});
    const Values raised = where(b_, far, {carried[1], carried[2]}, [&] {
      return Values{op(b_, Opcode::mul, {carried[1], reducer.scale(carried[2], top)}), top};
    });
    const ValueId base = raised[1];
    const Values sum = b_.branch(
        logic(b_, Opcode::equal, {base, lowest}), [&] { return Values{raised[0]}; },
        [&] {
          return own.in_order(0, {raised[0]}, [&](Expr lane, const Values& before) {
            const ValueId d = op(b_, Opcode::sub, {own.load(lane), base});
            const ValueId term = dtype == DType::f32
                                     ? b_.function(kernel::NamedFunction::exp_term, {d})
                                     : op(b_, Opcode::exp, {d});
            return Values{op(b_, Opcode::add, {before[0], term})};
          });
        });
    return {top, sum[0], base};
  };
  const Values parts = bodies_.along(stage, pass, {lowest, b_.real(dtype, 0), lowest}, add);
  const ValueId sum = op(b_, Opcode::mul, {parts[1], reducer.scale(parts[2], parts[0])});
  define(prepared, reducer.results(team_.join(reducer, {parts[0], sum})));
}

// All of a pass at once, each lane with an accumulator of its own: that many independent chains of
// additions.
void RowReductions::sums(const PreparedStage& prepared, std::size_t pass) {
  const Stage& stage = prepared.stage;
  const DType dtype = stage.accumulator;
  const std::size_t count = prepared.reductions.size();
  const Elements parts = elements(dtype, static_cast<std::int64_t>(count));
  const auto part = [&](std::size_t r) { return parts.at(constant(static_cast<std::int64_t>(r))); };
  const ValueId none = zero(b_, dtype);
  in_lanes(b_, blocks_.lanes, [&](Expr lane) {
    for (std::size_t r = 0; r < count; ++r) part(r).store_lane(lane, none);
  });
  RowBodies::Wanted wanted;
  for (const PreparedReduction& reduction : prepared.reductions) {
    wanted.yields.push_back(reduction.yield);
  }
  const auto add = [&](BodyExpander& body, Expr lane, ValueId active) {
    Values before, after;
    for (std::size_t r = 0; r < count; ++r) before.push_back(part(r).load_lane(lane));
    for (std::size_t r = 0; r < count; ++r) {
      const loop::Val yield = stage.body.yields[prepared.reductions[r].yield];
      const ValueId sum = op(b_, Opcode::add, {before[r], b_.cast(body.value(yield, 0), dtype)});
      after.push_back(active == kernel::kNone ? sum : select(b_, active, sum, before[r]));
    }
    for (std::size_t r = 0; r < count; ++r) part(r).store_lane(lane, after[r]);
    return Values();
  };
  (void)bodies_.along(stage, pass, {}, [&](const RowPlace& place, const Values&) {
    return bodies_.in_lanes(stage, pass, place, wanted, add);
  });
  Values sums;
  for (std::size_t r = 0; r < count; ++r) {
    Values lanes;
    for (std::int64_t l = 0; l < blocks_.lanes; ++l) lanes.push_back(part(r).load(constant(l)));
    for (std::size_t half = lanes.size() / 2; half > 0; half /= 2) {
      for (std::size_t l = 0; l < half; ++l)
        lanes[l] = op(b_, Opcode::add, {lanes[l], lanes[l + half]});
    }
    sums.push_back(lanes[0]);
  }
  sums = team_.join(sums, [&](const Values& a, const Values& b) {
    Values all;
    for (std::size_t r = 0; r < count; ++r) all.push_back(op(b_, Opcode::add, {a[r], b[r]}));
    return all;
  });
  for (std::size_t r = 0; r < count; ++r) define(prepared.reductions[r].rows[0], sums[r]);
}

}  // namespace inkle::schedule::expansion
