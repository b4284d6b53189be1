// Reductions of a stage on a CPU: every association is explicit.
#include <algorithm>
#include <limits>

#include "base/error.h"
#include "schedule/expand_reduce.h"
#include "schedule/expand_stage_loops.h"

namespace inkle::schedule::expansion {

using loop::Opcode;
using loop::ReduceOp;

namespace {

bool fits32(Expr e) {
  const sym::Range range = sym::bounds(e);
  if (range.low < std::numeric_limits<std::int32_t>::min() ||
      range.high > std::numeric_limits<std::int32_t>::max()) {
    return false;
  }
  if (e.kind() == sym::Kind::constant || e.kind() == sym::Kind::symbol) return true;
  return std::all_of(e.operands().begin(), e.operands().end(), fits32);
}

Values every_second(const Values& v) {
  Values result;
  for (std::size_t i = 1; i < v.size(); i += 2) result.push_back(v[i]);
  return result;
}

Values across_copies(Reducer& reducer, const Values& sums, std::ptrdiff_t width) {
  std::vector<Values> parts;
  for (auto at = sums.begin(); at != sums.end(); at += width) parts.emplace_back(at, at + width);
  while (parts.size() > 1) {
    std::vector<Values> half;
    for (std::size_t i = 0; i + 1 < parts.size(); i += 2) {
      half.push_back(reducer.merge(parts[i], parts[i + 1]));
    }
    if (parts.size() % 2 == 1) half.push_back(parts.back());
    parts = std::move(half);
  }
  return parts[0];
}

bool is_logical(const Stage& stage) {
  return stage.reduce == ReduceOp::any || stage.reduce == ReduceOp::all;
}

class StageReduction {
 public:
  StageReduction(Expansion& expansion, const Stage& stage, StageLoops& loops)
      : expansion_(expansion), b_(expansion.b), stage_(stage), loops_(loops) {}

  void run() {
    const bool columns = loops_.has_columns();
    if (stage_.reduce == ReduceOp::welford) {
      define_rows(columns ? welford_columns() : welford_rows());
    } else if (stage_.reduce == ReduceOp::online_softmax) {
      define_rows(columns ? softmax_columns() : softmax_rows());
    } else {
      define_rows(simple(stage_.reduce, false, nullptr));
    }
  }

 private:
  // What is applied to a yield before it is reduced.
  using Map = std::function<ValueId(ValueId)>;

  // The yield of a reduction as its accumulator's type.
  ValueId yielded(BodyExpander& body, int copy, const Map& map) {
    const ValueId x = b_.cast(body.value(stage_.body.yields.at(0), copy),
                              is_logical(stage_) ? DType::boolean : stage_.accumulator);
    return map == nullptr ? x : map(x);
  }

  Expr position() const {
    Expr result;
    for (const loop::Dim& dim : stage_.inner) {
      result = result.is_null() ? dim.variable : result * dim.extent + dim.variable;
    }
    return result;
  }

  // Results: one value after the other; for columns, of each copy. Long sums and products are split
  // in chunks, which meet in f64 and stay so: copies, lanes and the row's result. With `wide_lanes`
  // the lanes of short ones are of f64, too.
  Values simple(ReduceOp op, bool wide_lanes, const Map& map) {
    return loops_.in_lanes([&] { return simple_in_lanes(op, wide_lanes, map); });
  }

  Values simple_in_lanes(ReduceOp op, bool wide_lanes, const Map& map) {
    const Expr where = stage_.inner.empty() ? Expr() : position();
    const DType position_type = where.is_null() || fits32(where) ? DType::i32 : DType::i64;
    Reducer reducer(b_, op, stage_.accumulator, position_type);
    const auto width = static_cast<std::ptrdiff_t>(reducer.registers());
    Values start;
    for (int copy = 0; copy < loops_.shape().copies; ++copy) {
      const Values one = reducer.identity();
      start.insert(start.end(), one.begin(), one.end());
    }
    const StageLoops::Point point = [&](BodyExpander& body, const Lanes& group, int first_copy,
                                        const Values& carried) {
      Values after = carried;
      for (int copy = 0; copy < group.copies; ++copy) {
        const ValueId x = yielded(body, copy, map);
        ValueId at = kernel::kNone;
        if (reducer.has_position()) {
          at = where.is_null() ? b_.integer(position_type, 0)
                               : body.index(where, copy, position_type);
        }
        const auto first = after.begin() + (first_copy + copy) * width;
        const Values next = reducer.step(Values(first, first + width), x, at);
        std::copy(next.begin(), next.end(), first);
      }
      return after;
    };
    Reducer total(b_, op, DType::f64, DType::i32);
    const bool is_cut = loops_.is_long() && reducer.wants_chunks();
    const Values sums =
        is_cut ? add_chunks(total, start, point)
               : loops_.guarded(start, [&] { return loops_.nest(start, nullptr, point); });
    if (loops_.has_columns()) return reducer.has_position() ? every_second(sums) : sums;
    if (is_cut) return across_lanes(total, across_copies(total, sums, 1));
    const Values joined = across_copies(reducer, sums, width);
    if (wide_lanes) return across_lanes(total, {wide(joined[0])});
    return {across_lanes(reducer, joined).back()};
  }

  Values across_lanes(Reducer& reducer, const Values& states) {
    if (loops_.shape().lanes == 1) return states;
    kernel::Collective lanes;
    lanes.lanes = true;
    return b_.reduce(lanes, states,
                     [&](const Values& a, const Values& b) { return reducer.merge(a, b); });
  }

  // Totals of f64.
  Values add_chunks(Reducer& total, const Values& start, const StageLoops::Point& point) {
    const Chunks chunks{loops_.chunk_steps(), [&](const Values&) { return start; },
                        [&](const Values& totals, const Values& part) {
                          Values merged;
                          for (std::size_t i = 0; i < totals.size(); ++i) {
                            merged.push_back(total.merge({totals[i]}, {wide(part[i])})[0]);
                          }
                          return merged;
                        }};
    Values totals;
    for (const ValueId v : start) totals.push_back(wide(v));
    return loops_.guarded(totals, [&] { return loops_.nest(totals, &chunks, point); });
  }

  ValueId wide(ValueId v) { return b_.cast(v, DType::f64); }

  // Two passes over the row, which is in the cache the second time: what the mean lacks as the
  // accumulator holds it enters the squares only squared.
  Values welford_rows() {
    const ValueId sum = simple(ReduceOp::sum, !loops_.is_short(), nullptr)[0];
    const DType dtype = b_.type_of(sum).dtype;
    Expr count = b_.context().constant(1);
    for (const loop::Dim& dim : stage_.inner) count = count * dim.extent;
    const ValueId number = b_.index(count);
    ValueId mean = op(b_, Opcode::div, {sum, b_.cast(number, dtype)});
    if (loops_.may_be_empty()) {
      const ValueId some = logic(b_, Opcode::greater, {number, b_.integer(DType::i64, 0)});
      mean = select(b_, some, mean, b_.real(dtype, 0));
    }
    const ValueId center = b_.cast(mean, stage_.accumulator);
    const Map square = [&](ValueId x) {
      const ValueId d = op(b_, Opcode::sub, {x, center});
      return op(b_, Opcode::mul, {d, d});
    };
    return {mean, simple(ReduceOp::sum, !loops_.is_short(), square)[0]};
  }

  // The yields of the first element, one for each copy.
  Values first_yields() {
    return loops_.first([&](BodyExpander& body, const Lanes& group, int, const Values&) {
      Values first;
      for (int copy = 0; copy < group.copies; ++copy) {
        first.push_back(yielded(body, copy, nullptr));
      }
      return first;
    });
  }

  // One pass. A chunk adds up differences from the mean of what came before it, and their squares,
  // so that no digits cancel; chunks meet in f64: with n terms of mean m and squared deviations q
  // before, and k terms that differ from m by d in sum and by s squared, n + k terms have the mean
  // m + d / (n + k) and the squared deviations q + s - d^2 / (n + k).
  Values welford_columns() {
    Values zeros;
    if (stage_.inner.empty()) return one_deep_column();
    for (int i = 0; i < 2 * loops_.shape().copies; ++i) zeros.push_back(b_.real(DType::f64, 0));
    return loops_.guarded(zeros, [&] {
      Values totals;
      for (const ValueId first : first_yields()) {
        totals.push_back(wide(first));
        totals.push_back(b_.real(DType::f64, 0));
      }
      totals.push_back(b_.real(DType::f64, 0));  // the count
      const Chunks chunks{loops_.chunk_steps(), [&](const Values& t) { return begin_moments(t); },
                          [&](const Values& t, const Values& p) { return merge_moments(t, p); }};
      totals = loops_.nest(totals, &chunks, moments_step());
      totals.pop_back();
      return totals;
    });
  }

  // Columns of one element: it is the mean. Of an infinity and of a NaN the deviation is NaN.
  Values one_deep_column() {
    Values result;
    for (const ValueId first : first_yields()) {
      result.push_back(first);
      result.push_back(op(b_, Opcode::sub, {first, first}));
    }
    return result;
  }

  // Accumulators of a chunk: of each copy the sum of differences, that of their squares and the
  // number that is taken off; then the count.
  Values begin_moments(const Values& totals) {
    Values part;
    for (std::size_t i = 0; i + 1 < totals.size(); i += 2) {
      const ValueId center = b_.cast(totals[i], stage_.accumulator);
      part.push_back(b_.real(stage_.accumulator, 0));
      part.push_back(b_.real(stage_.accumulator, 0));
      part.push_back(center);
    }
    part.push_back(b_.integer(DType::i64, 0));
    return part;
  }

  Values merge_moments(const Values& totals, const Values& part) {
    const ValueId added = b_.cast(part.back(), DType::f64);
    const ValueId count = op(b_, Opcode::add, {totals.back(), added});
    const ValueId share = op(b_, Opcode::div, {b_.real(DType::f64, 1), count});
    Values merged;
    for (std::size_t i = 0, p = 0; i + 1 < totals.size(); i += 2, p += 3) {
      // The chunk took off the mean as the accumulator holds it: e more than the mean.
      const ValueId e = op(b_, Opcode::sub, {wide(part[p + 2]), totals[i]});
      const ValueId sum = wide(part[p]);
      const ValueId d = op(b_, Opcode::fma, {added, e, sum});
      const ValueId twice = op(b_, Opcode::add, {sum, d});
      const ValueId squares = op(b_, Opcode::fma, {e, twice, wide(part[p + 1])});
      merged.push_back(op(b_, Opcode::fma, {d, share, totals[i]}));
      const ValueId excess = op(b_, Opcode::mul, {op(b_, Opcode::mul, {d, d}), share});
      merged.push_back(
          op(b_, Opcode::add, {totals[i + 1], op(b_, Opcode::sub, {squares, excess})}));
    }
    merged.push_back(count);
    return merged;
  }

  StageLoops::Point moments_step() {
    return [this](BodyExpander& body, const Lanes& group, int, const Values& carried) {
      Values after = carried;
      after.back() = op(b_, Opcode::add, {carried.back(), b_.integer(DType::i64, 1)});
      for (std::size_t copy = 0; copy < static_cast<std::size_t>(group.copies); ++copy) {
        const ValueId x = yielded(body, static_cast<int>(copy), nullptr);
        const ValueId d = op(b_, Opcode::sub, {x, after[3 * copy + 2]});
        after[3 * copy] = op(b_, Opcode::add, {after[3 * copy], d});
        after[3 * copy + 1] = op(b_, Opcode::fma, {d, d, after[3 * copy + 1]});
      }
      return after;
    };
  }

  // exp(x - max), where a row of minus infinities has no difference to take.
  ValueId finite_or_zero(ValueId maximum) {
    const ValueId least = b_.real(stage_.accumulator, -std::numeric_limits<double>::infinity());
    const ValueId is_least = logic(b_, Opcode::equal, {maximum, least});
    return select(b_, is_least, b_.real(stage_.accumulator, 0), maximum);
  }
  ValueId exponential(ValueId a, ValueId b) {
    return b_.function(kernel::NamedFunction::exp_negative, {op(b_, Opcode::sub, {a, b})});
  }

  Values softmax_rows() {
    const ValueId maximum = simple(ReduceOp::max, false, nullptr)[0];
    const ValueId center = finite_or_zero(maximum);
    const Map term = [&](ValueId x) { return exponential(x, center); };
    const ValueId sum = simple(ReduceOp::sum, false, term)[0];
    return {maximum, b_.cast(sum, stage_.accumulator)};
  }

  Values softmax_columns() {
    Values start;
    for (int copy = 0; copy < loops_.shape().copies; ++copy) {
      start.push_back(b_.real(stage_.accumulator, -std::numeric_limits<double>::infinity()));
      start.push_back(b_.real(stage_.accumulator, 0));
    }
    const StageLoops::Point point = [&](BodyExpander& body, const Lanes& group, int,
                                        const Values& carried) {
      Values after = carried;
      for (int copy = 0; copy < group.copies; ++copy) {
        ValueId& maximum = after[static_cast<std::size_t>(2 * copy)];
        ValueId& sum = after[static_cast<std::size_t>(2 * copy + 1)];
        const ValueId x = yielded(body, copy, nullptr);
        const ValueId next = op(b_, Opcode::max, {x, maximum});
        const ValueId center = finite_or_zero(next);
        const ValueId scaled = op(b_, Opcode::mul, {sum, exponential(maximum, center)});
        sum = op(b_, Opcode::add, {scaled, exponential(x, center)});
        maximum = next;
      }
      return after;
    };
    return loops_.guarded(start, [&] { return loops_.nest(start, nullptr, point); });
  }

  void define_rows(const Values& results) {
    const std::size_t count = loop::result_count(stage_.reduce);
    const bool is_search = stage_.reduce == ReduceOp::argmin || stage_.reduce == ReduceOp::argmax;
    const DType result = is_logical(stage_) ? DType::boolean : stage_.accumulator;
    for (std::size_t r = 0; r < count; ++r) {
      Row row{{}, loops_.has_columns() && loops_.shape().lanes > 1};
      const DType to = expansion_.loops.rows.at(stage_.first_row + r);
      for (std::size_t i = r; i < results.size(); i += count) {
        row.copies.push_back(b_.cast(is_search ? results[i] : b_.cast(results[i], result), to));
      }
      expansion_.rows[stage_.first_row + r] = std::move(row);
    }
  }

  Expansion& expansion_;
  kernel::Builder& b_;
  const Stage& stage_;
  StageLoops& loops_;
};

}  // namespace

void expand_reduction(Expansion& expansion, const Stage& stage, StageLoops& loops) {
  StageReduction(expansion, stage, loops).run();
}

}  // namespace inkle::schedule::expansion
