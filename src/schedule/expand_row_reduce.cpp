// Reductions of rows: a thread takes up its elements in their order, then the team's threads meet.
#include <limits>

#include "base/error.h"
#include "schedule/expand_rows.h"

namespace inkle::schedule::expansion {

using kernel::LoopKind;
using loop::Opcode;
using loop::ReduceOp;

namespace {

constexpr std::int64_t kNowhere = std::numeric_limits<std::int32_t>::max();

bool has_position(ReduceOp op) { return op == ReduceOp::argmin || op == ReduceOp::argmax; }

bool is_wide_extent(Expr extent) { return sym::bounds(extent).high > kNowhere; }

}  // namespace

ValueId RowExpander::op(Opcode opcode, const Values& operands) {
  return b_.compute(opcode, b_.type_of(operands[0]).dtype, operands);
}

ValueId RowExpander::logic(Opcode opcode, const Values& operands) {
  return b_.compute(opcode, DType::boolean, operands);
}

void RowExpander::define(std::uint32_t row, ValueId value) {
  x_.e.rows[row] = {{b_.cast(value, x_.loops().rows.at(row))}, false};
}

// --- A thread's elements -------------------------------------------------------------------------

Values RowExpander::along(const Stage& stage, std::size_t pass, const Values& carried,
                          const AtPlace& f) {
  if (!blocks_.keep) return looped(stage, carried, f);
  prefetch(stage, pass);
  Usage usage;
  usage.lasts = blocks_.lasting;
  return kept(stage, usage, carried, f);
}

RowExpander::Elements RowExpander::elements(DType dtype, std::int64_t accesses) {
  return {registers("v", dtype, {accesses, blocks_.lanes}), dtype, constant(0)};
}

ValueId RowExpander::load(const Elements& elements, Expr lane) {
  return b_.load(elements.memory, {elements.number, lane});
}

// `otherwise`: the value of lanes outside of the row.
void RowExpander::put(const Stage& stage, std::size_t pass, const RowPlace& place,
                      const Elements& to, ValueId otherwise) {
  Wanted wanted;
  wanted.yields = {0};
  in_lanes(stage, pass, place, wanted, [&](BodyExpander& body, Expr lane, ValueId active) {
    ValueId x = b_.cast(body.value(stage.body.yields[0], 0), to.dtype);
    if (active != kernel::kNone && otherwise != kernel::kNone) {
      x = b_.compute(Opcode::select, to.dtype, {active, x, otherwise});
    }
    b_.store(element_of(to.memory, to.number, lane), x);
    return Values();
  });
}

Values RowExpander::in_order(std::int64_t from, const Values& carried, const OfLane& f) {
  if (blocks_.lanes == 1) return from == 0 ? f(constant(0), carried) : carried;
  kernel::Loop info;
  info.kind = LoopKind::unroll;
  info.begin = constant(from);
  info.end = constant(blocks_.lanes);
  info.step = constant(1);
  return b_.loop(std::move(info), carried, f);
}

// The lanes that are in the row, one after the other.
Values RowExpander::in_row(const Stage& stage, const RowPlace& place, const Values& carried,
                           const OfLane& f) {
  return in_order(0, carried, [&](Expr lane, const Values& before) {
    if (!place.part) return f(lane, before);
    return where(active(stage, place, lane), before, [&] { return f(lane, before); });
  });
}

// --- A row's team --------------------------------------------------------------------------------

// By halves: lanes, then warps. The next row has memory of its own for that, so that nobody writes
// what others still read.
Values RowExpander::join(const Values& states, const Merge& merge) {
  constexpr std::int32_t kWarp = 32;
  if (members() == 1) return states;
  kernel::Collective team;
  team.axes = team_;
  if (blocks_.team > kWarp) {
    for (const ValueId state : states) {
      const kernel::MemoryId slots = shared("s", b_.type_of(state).dtype, blocks_.team / kWarp);
      auto& shape = b_.kernel().memories[slots].shape;
      if (walks()) shape.insert(shape.begin(), constant(2));
      team.scratch.push_back(slots);
    }
  }
  const Values own = b_.reduce(std::move(team), states, merge);
  return blocks_.cluster > 1 ? join_cluster(own, merge) : own;
}

// The blocks' states, one after the other.
Values RowExpander::join_cluster(const Values& states, const Merge& merge) {
  std::vector<kernel::MemoryId> own;
  for (const ValueId state : states) own.push_back(shared("s", b_.type_of(state).dtype, 1));
  b_.branch(
      logic(Opcode::equal, {b_.index(warp_ * std::int64_t{32} + lane_), b_.index(constant(0))}),
      [&] {
        for (std::size_t s = 0; s < states.size(); ++s) {
          b_.store(own[s], {constant(0)}, states[s]);
        }
        return Values();
      });
  b_.barrier({.scope = kernel::Scope::cluster});
  Values all;
  for (std::int64_t block = 0; block < blocks_.cluster; ++block) {
    const ValueId rank = b_.integer(DType::i64, block);
    Values part;
    for (std::size_t s = 0; s < states.size(); ++s) {
      kernel::Access access;
      access.memory = own[s];
      access.indices = {constant(0)};
      access.remote = true;
      part.push_back(
          b_.operation(kernel::Op::load, {rank}, {b_.type_of(states[s])}, std::move(access))[0]);
    }
    all = block == 0 ? part : merge(all, part);
  }
  return all;
}

Values RowExpander::join(GpuReducer& reducer, const Values& states) {
  return join(states, [&](const Values& a, const Values& b) { return reducer.merge(a, b); });
}

// --- Reductions ----------------------------------------------------------------------------------

void RowExpander::reduction(const PreparedStage& prepared, std::size_t pass) {
  const Stage& stage = prepared.stage;
  if (stage.inner.empty()) return single(prepared);
  if (walks() && stage.reduce == ReduceOp::sum) return sums_of_row(prepared, pass);
  if (stage.reduce == ReduceOp::welford) {
    return blocks_.keep ? moments_kept(prepared, pass) : moments(prepared, pass);
  }
  if (stage.reduce == ReduceOp::online_softmax) return exponentials(prepared, pass);
  if (!has_position(stage.reduce)) return simple(prepared, pass);
  if (blocks_.keep) return search(prepared, pass);
  best(prepared, pass);
}

// Of one element, by each thread for itself.
void RowExpander::single(const PreparedStage& prepared) {
  const Stage& stage = prepared.stage;
  GpuReducer reducer(b_, stage.reduce, stage.accumulator, DType::i32);
  BodyExpander body(x_.e, stage.body, {});
  const ValueId x = b_.cast(body.value(stage.body.yields[0], 0), reducer.element());
  const ValueId position =
      reducer.has_position() ? b_.integer(DType::i32, 0) : ValueId{kernel::kNone};
  const Values results = reducer.results(reducer.step(reducer.identity(), x, position));
  for (std::size_t r = 0; r < results.size(); ++r) define(prepared.rows[r], results[r]);
}

void RowExpander::simple(const PreparedStage& prepared, std::size_t pass) {
  const Stage& stage = prepared.stage;
  GpuReducer reducer(b_, stage.reduce, stage.accumulator, DType::i32);
  const Elements own = elements(reducer.element());
  const Values states =
      along(stage, pass, reducer.identity(), [&](const RowPlace& place, const Values& carried) {
        put(stage, pass, place, own);
        return in_row(stage, place, carried, [&](Expr lane, const Values& before) {
          return reducer.step(before, load(own, lane), kernel::kNone);
        });
      });
  define(prepared.rows[0], reducer.results(join(reducer, states))[0]);
}

// The best of the lanes first, then whether it is better than what was before.
void RowExpander::best(const PreparedStage& prepared, std::size_t pass) {
  const Stage& stage = prepared.stage;
  const bool is_max = stage.reduce == ReduceOp::argmax;
  const bool is_wide = is_wide_extent(stage.inner.front().extent);
  const DType position = is_wide ? DType::i64 : DType::i32;
  GpuReducer reducer(b_, stage.reduce, stage.accumulator, position);
  const Elements own = elements(reducer.element());
  const ValueId worst = reducer.extreme(!is_max);
  const auto add = [&](const RowPlace& place, const Values& carried) -> Values {
    put(stage, pass, place, own, worst);
    if (blocks_.lanes == 1) {
      return reducer.step(carried, load(own, constant(0)), b_.index(place.base, position));
    }
    const Opcode better = is_max ? Opcode::max : Opcode::min;
    const ValueId top = in_order(1, {load(own, constant(0))}, [&](Expr lane, const Values& before) {
      return Values{op(better, {before[0], load(own, lane)})};
    })[0];
    const Opcode not_better = is_max ? Opcode::less_equal : Opcode::greater_equal;
    const ValueId differs = logic(Opcode::bit_not, {logic(not_better, {top, carried[0]})});
    const ValueId beats = logic(Opcode::bit_and, {differs, reducer.beats(top, carried[0])});
    return where(beats, carried, [&] {
      const ValueId first = first_of(own, top, b_.integer(position, 0),
                                     [&](Expr lane) { return b_.index(lane, position); });
      return Values{top, op(Opcode::add, {b_.index(place.base, position), first})};
    });
  };
  const Values states = along(stage, pass, reducer.identity(), add);
  define(prepared.rows[0], reducer.results(join(reducer, states))[0]);
}

// Of the first lane that has this value or a NaN: its position; else `none`.
ValueId RowExpander::first_of(const Elements& own, ValueId value, ValueId none,
                              const std::function<ValueId(Expr lane)>& position) {
  return in_order(0, {none}, [&](Expr reversed, const Values& before) {
    const Expr lane = constant(blocks_.lanes - 1) - reversed;
    const ValueId x = load(own, lane);
    ValueId found = logic(Opcode::equal, {x, value});
    if (abi::is_float(own.dtype)) {
      found = logic(Opcode::bit_or, {found, logic(Opcode::is_nan, {x})});
    }
    const ValueId at = position(lane);
    return Values{b_.compute(Opcode::select, b_.type_of(none).dtype, {found, at, before[0]})};
  })[0];
}

// The extreme value first, all of the row kept; then those threads that have it look for its place.
void RowExpander::search(const PreparedStage& prepared, std::size_t pass) {
  const Stage& stage = prepared.stage;
  const bool is_max = stage.reduce == ReduceOp::argmax;
  const std::int64_t lanes = blocks_.lanes;
  const std::int64_t count = accesses_of(stage);
  GpuReducer values(b_, is_max ? ReduceOp::max : ReduceOp::min, stage.accumulator, DType::i32);
  GpuReducer places(b_, ReduceOp::min, DType::i32, DType::i32);
  Elements all = elements(values.element(), count);
  const ValueId worst = values.identity()[0];
  const auto each = [&](const Values& carried, const OfLane& f) {
    if (count == 1) return f(constant(0), carried);
    return b_.loop(LoopKind::unroll, constant(count), carried, f);
  };
  if (is_skewed(stage) || *stage.inner.front().extent.constant() % step() != 0) {
    each({}, [&](Expr k, const Values&) {
      b_.vector(blocks_.lanes, blocks_.lanes, [&](Expr lane) {
        b_.store(element_of(all.memory, k, lane), worst);
        return Values();
      });
      return Values();
    });
  }
  prefetch(stage, pass);
  Usage usage;
  usage.lasts = blocks_.lasting;
  usage.streams = true;
  (void)kept(stage, usage, {}, [&](const RowPlace& place, const Values&) {
    all.number = place.number;
    put(stage, pass, place, all, worst);
    return Values();
  });
  all.number = constant(0);
  const Values own = each({load(all, constant(0))}, [&](Expr k, const Values& before) {
    all.number = k;
    return in_order(0, before, [&](Expr lane, const Values& top) {
      return values.merge(top, {load(all, lane)});
    });
  });
  const ValueId best = join(values, own)[0];
  const ValueId none = b_.integer(DType::i32, kNowhere);
  ValueId has = logic(Opcode::equal, {own[0], best});
  if (abi::is_float(all.dtype)) {
    has = logic(Opcode::bit_or, {has, logic(Opcode::is_nan, {own[0]})});
  }
  const Expr first = is_skewed(stage) ? position_ * lanes - skew_ : position_ * lanes;
  const Values at = where(has, {none}, [&] {
    return each({none}, [&](Expr reversed, const Values& before) {
      all.number = constant(count - 1) - reversed;
      return Values{first_of(all, best, before[0], [&](Expr lane) {
        return b_.index(first + all.number * step() + lane, DType::i32);
      })};
    });
  });
  const ValueId place = join(places, at)[0];
  const ValueId nowhere = logic(Opcode::equal, {place, none});
  const ValueId wide = b_.cast(place, DType::i64);
  define(prepared.rows[0],
         b_.compute(Opcode::select, DType::i64, {nowhere, b_.integer(DType::i64, 0), wide}));
}

// The mean in one loop over what is kept, the squares of the deviations in another.
void RowExpander::moments_kept(const PreparedStage& prepared, std::size_t pass) {
  const Stage& stage = prepared.stage;
  const DType dtype = stage.accumulator;
  const bool is_second = passes_[pass].part == 1;
  GpuReducer reducer(b_, ReduceOp::sum, dtype, DType::i32);
  const Elements own = elements(dtype);
  ValueId mean = kernel::kNone;
  if (is_second) mean = b_.cast(x_.e.rows[prepared.rows[0]].copies[0], dtype);
  const Values states =
      along(stage, pass, reducer.identity(), [&](const RowPlace& place, const Values& carried) {
        put(stage, pass, place, own);
        return in_row(stage, place, carried, [&](Expr lane, const Values& before) {
          const ValueId x = load(own, lane);
          if (!is_second) return reducer.step(before, x, kernel::kNone);
          const ValueId d = op(Opcode::sub, {x, mean});
          return Values{op(Opcode::fma, {d, d, before[0]})};
        });
      });
  ValueId result = join(reducer, states)[0];
  if (!is_second) {
    const auto count = static_cast<double>(*stage.inner.front().extent.constant());
    result = op(Opcode::div, {result, b_.real(dtype, count)});
  }
  define(prepared.rows[is_second ? 1 : 0], result);
}

// One pass: the moments of neighbouring lanes first, then joined to what was before.
void RowExpander::moments(const PreparedStage& prepared, std::size_t pass) {
  const Stage& stage = prepared.stage;
  const DType dtype = stage.accumulator;
  GpuReducer reducer(b_, ReduceOp::welford, dtype, DType::i32);
  const Elements own = elements(dtype);
  const auto real = [&](double value) { return b_.real(dtype, value); };
  const auto of_lanes = [&]() -> Values {
    const auto lanes = static_cast<double>(blocks_.lanes);
    const ValueId sum = in_order(0, {real(0)}, [&](Expr lane, const Values& before) {
      return Values{op(Opcode::add, {before[0], load(own, lane)})};
    })[0];
    const ValueId mean = op(Opcode::mul, {sum, real(1 / lanes)});
    const ValueId squares = in_order(0, {real(0)}, [&](Expr lane, const Values& before) {
      const ValueId d = op(Opcode::sub, {load(own, lane), mean});
      return Values{op(Opcode::add, {before[0], op(Opcode::mul, {d, d})})};
    })[0];
    return {real(lanes), mean, squares};
  };
  const auto add = [&](const RowPlace& place, const Values& carried) {
    put(stage, pass, place, own);
    const OfLane one = [&](Expr lane, const Values& before) {
      return reducer.merge(before, {real(1), load(own, lane), real(0)});
    };
    if (blocks_.lanes == 1) return one(constant(0), carried);
    return reducer.merge(carried,
                         place.part ? in_row(stage, place, reducer.identity(), one) : of_lanes());
  };
  const Values states = along(stage, pass, reducer.identity(), add);
  const Values results = reducer.results(join(reducer, states));
  for (std::size_t r = 0; r < results.size(); ++r) define(prepared.rows[r], results[r]);
}

// While a thread adds, its sum is of exp(x - base), the base a maximum of before that is at most 4
// below the present one: raising it with every new maximum would keep a warp busy with that.
void RowExpander::exponentials(const PreparedStage& prepared, std::size_t pass) {
  constexpr double kMostAbove = 4;
  const Stage& stage = prepared.stage;
  const DType dtype = stage.accumulator;
  GpuReducer reducer(b_, ReduceOp::online_softmax, dtype, DType::i32);
  const Elements own = elements(dtype);
  const ValueId lowest = reducer.extreme(false);
  const auto add = [&](const RowPlace& place, const Values& carried) -> Values {
    put(stage, pass, place, own, lowest);
    const ValueId top = in_order(0, {carried[0]}, [&](Expr lane, const Values& before) {
      return Values{op(Opcode::max, {before[0], load(own, lane)})};
    })[0];
    const ValueId limit = op(Opcode::add, {carried[2], b_.real(dtype, kMostAbove)});
    const ValueId far = logic(Opcode::bit_not, {logic(Opcode::less_equal, {top, limit})});
    const Values raised = where(far, {carried[1], carried[2]}, [&] {
      return Values{op(Opcode::mul, {carried[1], reducer.scale(carried[2], top)}), top};
    });
    const ValueId base = raised[1];
    const Values sum = b_.branch(
        logic(Opcode::equal, {base, lowest}), [&] { return Values{raised[0]}; },
        [&] {
          return in_order(0, {raised[0]}, [&](Expr lane, const Values& before) {
            const ValueId d = op(Opcode::sub, {load(own, lane), base});
            const ValueId term = dtype == DType::f32
                                     ? b_.function(kernel::NamedFunction::exp_term, {d})
                                     : op(Opcode::exp, {d});
            return Values{op(Opcode::add, {before[0], term})};
          });
        });
    return {top, sum[0], base};
  };
  const Values parts = along(stage, pass, {lowest, b_.real(dtype, 0), lowest}, add);
  const ValueId sum = op(Opcode::mul, {parts[1], reducer.scale(parts[2], parts[0])});
  const Values results = reducer.results(join(reducer, {parts[0], sum}));
  for (std::size_t r = 0; r < results.size(); ++r) define(prepared.rows[r], results[r]);
}

}  // namespace inkle::schedule::expansion
