// One stage of a loop kernel as loops, vector regions and carried values.
#include <algorithm>
#include <bit>
#include <limits>

#include "base/error.h"
#include "schedule/expand_parts.h"
#include "schedule/expand_reduce.h"

namespace inkle::schedule {

using loop::Opcode;

int weight_of(const loop::Body& body) {
  int weight = 0;
  for (const loop::Instruction& i : body.instructions) {
    if (i.opcode >= Opcode::exp && i.opcode <= Opcode::hypot)
      weight += 20;
    else if (i.opcode != Opcode::constant)
      weight += 1;
  }
  return weight;
}

}  // namespace inkle::schedule

namespace inkle::schedule::expansion {

using loop::Opcode;
using loop::ReduceOp;

namespace {

// Independent copies of a body keep the units busy while a result is on its way (4 cycles of an
// addition, 2 a cycle); a long body has enough to do by itself and would only spill.
constexpr int kLightBody = 16;
constexpr int kMediumBody = 48;

// Where the order of a row's terms is fixed the body's weight, of which fusion decides, says
// nothing.
constexpr int kCopiesOfRows = 2;

// Terms that one accumulator takes before it is added to its total, which has twice the digits of
// f32: the error of a sum is that of a chain so long. Merging costs as much as about four terms.
constexpr std::int64_t kChunk = 32;
// Fewer terms than this to an accumulator are added up in one chain.
constexpr std::int64_t kShortChain = 64;
// Rows of so few terms to an accumulator have moments whose lanes meet in f32, too: in f64 a layer
// norm of 2048x64 takes 36 us instead of 31, one of 512x768 as long as in f32 (a core with
// AVX-512).
constexpr std::int64_t kShortRow = 4;

bool fits32(Expr e) {
  const sym::Range range = sym::bounds(e);
  if (range.low < std::numeric_limits<std::int32_t>::min() ||
      range.high > std::numeric_limits<std::int32_t>::max()) {
    return false;
  }
  if (e.kind() == sym::Kind::constant || e.kind() == sym::Kind::symbol) return true;
  return std::all_of(e.operands().begin(), e.operands().end(), fits32);
}

class StageExpander {
 public:
  StageExpander(Expansion& expansion, const Stage& stage, const Lanes* columns)
      : expansion_(expansion), b_(expansion.b), stage_(stage), columns_(columns) {
    if (stage.association == Association::columns && columns == nullptr) {
      columns_ = &one_column_;
    }
    for (const loop::Dim& dim : stage.inner) {
      may_be_empty_ = may_be_empty_ || sym::bounds(dim.extent).low < 1;
    }
    choose_shape();
    find_chunks();
  }

  void run() {
    if (stage_.kind == StageKind::scan) return scan();
    if (stage_.kind != StageKind::reduction) {
      in_lanes([&] { return guarded({}, [&] { return nest(0, {}, nullptr, pointwise()); }); });
      return;
    }
    Values results;
    if (stage_.reduce == ReduceOp::welford) {
      results = columns_ == nullptr ? welford_rows() : welford_columns();
    } else if (stage_.reduce == ReduceOp::online_softmax) {
      results = columns_ == nullptr ? softmax_rows() : softmax_columns();
    } else {
      results = simple(stage_.reduce, false, nullptr);
    }
    define_rows(results);
  }

 private:
  using Point = std::function<Values(BodyExpander& body, const Lanes& group, int first_copy,
                                     const Values& carried)>;
  // What becomes of a yield before it is reduced.
  using Map = std::function<ValueId(ValueId)>;

  bool is_serial() const {
    return stage_.kind == StageKind::scan || stage_.kind == StageKind::scatter;
  }

  // The order of the terms depends on nothing but the order of the loops.
  bool is_fixed() const { return stage_.association != Association::free; }

  void choose_shape() {
    if (columns_ != nullptr) {
      shape_ = *columns_;
      return;
    }
    if (stage_.inner.empty() || is_serial()) return;
    shape_.lanes = std::max(expansion_.schedule.lanes, 1);
    shape_.copies = std::max(expansion_.schedule.unroll, 1);
    const int weight = weight_of(stage_.body);
    if (stage_.association == Association::rows) {
      shape_.copies = std::min(shape_.copies, kCopiesOfRows);
    } else if (stage_.kind == StageKind::pointwise) {
      shape_.copies = weight <= kLightBody ? std::min(shape_.copies, 2) : 1;
    } else if (weight > kLightBody) {
      shape_.copies = weight <= kMediumBody ? std::min(shape_.copies, 2) : 1;
    }
    if (const auto extent = stage_.inner.back().extent.constant(); extent && !is_fixed()) {
      const auto least =
          std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(*extent, 1)));
      shape_.lanes = static_cast<int>(
          std::min<std::uint64_t>(static_cast<std::uint64_t>(shape_.lanes), least));
    }
    if (shape_.lanes == 1) shape_.copies = 1;
    shape_.variable = stage_.inner.back().variable;
  }

  // Steps of an inner loop, at its hint or at most.
  std::int64_t steps(std::size_t level, bool most) const {
    const Expr extent = stage_.inner[level].extent;
    const std::int64_t count = most ? sym::bounds(extent).high : sym::hint(extent).value_or(1024);
    if (columns_ != nullptr || level + 1 < stage_.inner.size() || shape_.lanes == 1) return count;
    const std::int64_t group = std::int64_t{shape_.lanes} * shape_.copies;
    return count / group + (count % group + shape_.lanes - 1) / shape_.lanes;
  }

  // The loop that is cut in chunks: the innermost that makes one of kChunk / 2 terms or more with
  // what is inside of it.
  void find_chunks() {
    if (is_fixed()) {  // whatever is known of extents
      is_long_ = !stage_.inner.empty();
      chunk_level_ = stage_.inner.size() - 1;
      chunk_steps_ = kChunk;
      return;
    }
    double most = 1;
    for (std::size_t level = stage_.inner.size(); level-- > 0;) {
      most *= static_cast<double>(steps(level, true));
    }
    is_long_ = most > kShortChain;
    is_short_ = most <= kShortRow;
    std::int64_t inside = 1;
    for (chunk_level_ = stage_.inner.size(); chunk_level_-- > 0;) {
      const std::int64_t here = std::max<std::int64_t>(steps(chunk_level_, false), 1);
      chunk_steps_ = std::max<std::int64_t>(1, kChunk / inside);
      if (chunk_level_ == 0 || inside * here >= kChunk / 2) break;
      inside *= here;
    }
  }

  // The lanes of a stage that has its own; `run` may yield only what is equal for all of them.
  Values in_lanes(const std::function<Values()>& run) {
    if (columns_ != nullptr || shape_.lanes == 1) return run();
    return b_.vector(shape_.lanes, shape_.lanes, [&](Expr lane) {
      shape_.lane = lane;
      return run();
    });
  }

  // `run` unless some loop is empty, else `otherwise`.
  Values guarded(const Values& otherwise, const std::function<Values()>& run) {
    if (!may_be_empty_) return run();
    ValueId some = kernel::kNone;
    for (const loop::Dim& dim : stage_.inner) {
      if (sym::bounds(dim.extent).low >= 1) continue;
      const ValueId positive = b_.compute(Opcode::greater, DType::boolean,
                                          {b_.index(dim.extent), b_.integer(DType::i64, 0)});
      some = some == kernel::kNone ? positive
                                   : b_.compute(Opcode::bit_and, DType::boolean, {some, positive});
    }
    return b_.branch(some, run, [&] { return otherwise; });
  }

  Values at_point(const Lanes& group, int first_copy, const Values& carried, const Point& point) {
    BodyExpander body(expansion_, stage_.body, group);
    return point(body, group, first_copy, carried);
  }

  Values nest(std::size_t level, const Values& carried, const Chunks* chunks, const Point& point) {
    const std::size_t last = stage_.inner.size();
    if (level == last) {
      return at_point(columns_ == nullptr ? Lanes() : *columns_, 0, carried, point);
    }
    const loop::Dim& dim = stage_.inner[level];
    const Chunks* here = level == chunk_level_ ? chunks : nullptr;
    if (columns_ == nullptr && level + 1 == last && shape_.lanes > 1) {
      const LaneRange range{b_.context().constant(0), dim.extent,
                            is_fixed() ? std::nullopt : dim.extent.constant()};
      return lane_loop(expansion_, shape_, range, carried, here,
                       [&](const Lanes& group, int first_copy, const Values& values) {
                         return at_point(group, first_copy, values, point);
                       });
    }
    return scalar_loop(expansion_, dim, carried, here, [&](const Values& values) {
      return nest(level + 1, values, chunks, point);
    });
  }

  Point pointwise() {
    return [this](BodyExpander& body, const Lanes& group, int, const Values&) {
      for (int copy = 0; copy < group.copies; ++copy) {
        for (const loop::Val yield : stage_.body.yields) (void)body.value(yield, copy);
      }
      for (int copy = 0; copy < group.copies; ++copy) {
        for (const StageStore& store : stage_.stores) body.store(store, copy);
      }
      return Values();
    };
  }

  bool is_logical() const {
    return stage_.reduce == ReduceOp::any || stage_.reduce == ReduceOp::all;
  }

  // The yield of a reduction as its accumulator's type.
  ValueId yielded(BodyExpander& body, int copy, const Map& map) {
    const ValueId x = b_.cast(body.value(stage_.body.yields.at(0), copy),
                              is_logical() ? DType::boolean : stage_.accumulator);
    return map == nullptr ? x : map(x);
  }

  Expr position() const {
    Expr result;
    for (const loop::Dim& dim : stage_.inner) {
      result = result.is_null() ? dim.variable : result * dim.extent + dim.variable;
    }
    return result;
  }

  // Results: one value after the other; for columns, of each copy. Long sums and products are cut
  // in chunks, which meet in f64 and stay so: copies, lanes and the row's result. With `wide_lanes`
  // the lanes of short ones are of f64, too.
  Values simple(ReduceOp op, bool wide_lanes, const Map& map) {
    return in_lanes([&] { return simple_in_lanes(op, wide_lanes, map); });
  }

  Values simple_in_lanes(ReduceOp op, bool wide_lanes, const Map& map) {
    const Expr where = stage_.inner.empty() ? Expr() : position();
    const DType position_type = where.is_null() || fits32(where) ? DType::i32 : DType::i64;
    Reducer reducer(b_, op, stage_.accumulator, position_type);
    const auto width = static_cast<std::ptrdiff_t>(reducer.registers());
    Values start;
    for (int copy = 0; copy < shape_.copies; ++copy) {
      const Values one = reducer.identity();
      start.insert(start.end(), one.begin(), one.end());
    }
    const Point point = [&](BodyExpander& body, const Lanes& group, int first_copy,
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
    const bool is_cut = is_long_ && reducer.wants_chunks();
    const Values sums = is_cut ? add_chunks(total, start, point)
                               : guarded(start, [&] { return nest(0, start, nullptr, point); });
    if (columns_ != nullptr) return reducer.has_position() ? every_second(sums) : sums;
    if (is_cut) return across_lanes(total, across_copies(total, sums, 1));
    const Values joined = across_copies(reducer, sums, width);
    if (wide_lanes) return across_lanes(total, {wide(joined[0])});
    return {across_lanes(reducer, joined).back()};
  }

  Values across_lanes(Reducer& reducer, const Values& states) {
    if (shape_.lanes == 1) return states;
    kernel::Collective lanes;
    lanes.lanes = true;
    return b_.reduce(lanes, states,
                     [&](const Values& a, const Values& b) { return reducer.merge(a, b); });
  }

  // Totals of f64.
  Values add_chunks(Reducer& total, const Values& start, const Point& point) {
    const Chunks chunks{chunk_steps_, [&](const Values&) { return start; },
                        [&](const Values& totals, const Values& part) {
                          Values merged;
                          for (std::size_t i = 0; i < totals.size(); ++i) {
                            merged.push_back(total.merge({totals[i]}, {wide(part[i])})[0]);
                          }
                          return merged;
                        }};
    Values totals;
    for (const ValueId v : start) totals.push_back(wide(v));
    return guarded(totals, [&] { return nest(0, totals, &chunks, point); });
  }

  ValueId wide(ValueId v) { return b_.cast(v, DType::f64); }

  void scan() {
    Reducer reducer(b_, stage_.reduce, stage_.accumulator, DType::i32);
    Values start;
    for (int copy = 0; copy < shape_.copies; ++copy) start.push_back(reducer.identity()[0]);
    const Point point = [&](BodyExpander& body, const Lanes& group, int, const Values& carried) {
      Values after = carried;
      for (int copy = 0; copy < group.copies; ++copy) {
        ValueId& running = after[static_cast<std::size_t>(copy)];
        running = reducer.step({running}, yielded(body, copy, nullptr), kernel::kNone)[0];
      }
      for (int copy = 0; copy < group.copies; ++copy) {
        for (const StageStore& store : stage_.stores) {
          body.store(store, after[static_cast<std::size_t>(copy)], group.lanes > 1, copy);
        }
      }
      return after;
    };
    (void)guarded(start, [&] { return nest(0, start, nullptr, point); });
  }

  static Values every_second(const Values& v) {
    Values result;
    for (std::size_t i = 1; i < v.size(); i += 2) result.push_back(v[i]);
    return result;
  }

  static Values across_copies(Reducer& reducer, const Values& sums, std::ptrdiff_t width) {
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

  ValueId float_op(Opcode opcode, const Values& operands) {
    return b_.compute(opcode, b_.type_of(operands[0]).dtype, operands);
  }

  // Two passes over the row, which is in the cache the second time: what the mean lacks as the
  // accumulator holds it enters the squares only squared.
  Values welford_rows() {
    const ValueId sum = simple(ReduceOp::sum, !is_short_, nullptr)[0];
    const DType dtype = b_.type_of(sum).dtype;
    Expr count = b_.context().constant(1);
    for (const loop::Dim& dim : stage_.inner) count = count * dim.extent;
    const ValueId number = b_.index(count);
    ValueId mean = float_op(Opcode::div, {sum, b_.cast(number, dtype)});
    if (may_be_empty_) {
      const ValueId some =
          b_.compute(Opcode::greater, DType::boolean, {number, b_.integer(DType::i64, 0)});
      mean = b_.compute(Opcode::select, dtype, {some, mean, b_.real(dtype, 0)});
    }
    const ValueId center = b_.cast(mean, stage_.accumulator);
    const Map square = [&](ValueId x) {
      const ValueId d = float_op(Opcode::sub, {x, center});
      return float_op(Opcode::mul, {d, d});
    };
    return {mean, simple(ReduceOp::sum, !is_short_, square)[0]};
  }

  // The yields of the first element, one for each copy.
  Values first_yields() {
    const std::size_t before = expansion_.replaced.size();
    for (const loop::Dim& dim : stage_.inner) {
      expansion_.replaced.emplace_back(dim.variable, b_.context().constant(0));
    }
    Values result =
        at_point(*columns_, 0, {}, [&](BodyExpander& body, const Lanes& group, int, const Values&) {
          Values first;
          for (int copy = 0; copy < group.copies; ++copy) {
            first.push_back(yielded(body, copy, nullptr));
          }
          return first;
        });
    expansion_.replaced.resize(before);
    return result;
  }

  // One pass. A chunk adds up differences from the mean of what came before it, and their squares,
  // so that no digits cancel; chunks meet in f64: with n terms of mean m and squared deviations q
  // before, and k terms that differ from m by d in sum and by s squared, n + k terms have the mean
  // m + d / (n + k) and the squared deviations q + s - d^2 / (n + k).
  Values welford_columns() {
    Values zeros;
    if (stage_.inner.empty()) return one_deep_column();
    for (int i = 0; i < 2 * shape_.copies; ++i) zeros.push_back(b_.real(DType::f64, 0));
    return guarded(zeros, [&] {
      Values totals;
      for (const ValueId first : first_yields()) {
        totals.push_back(wide(first));
        totals.push_back(b_.real(DType::f64, 0));
      }
      totals.push_back(b_.real(DType::f64, 0));  // the count
      const Chunks chunks{chunk_steps_, [&](const Values& t) { return begin_moments(t); },
                          [&](const Values& t, const Values& p) { return merge_moments(t, p); }};
      totals = nest(0, totals, &chunks, moments_step());
      totals.pop_back();
      return totals;
    });
  }

  // Columns of one element: it is the mean.
  Values one_deep_column() {
    Values result;
    for (const ValueId first : first_yields()) {
      result.push_back(first);
      result.push_back(b_.real(stage_.accumulator, 0));
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
    const ValueId count = float_op(Opcode::add, {totals.back(), added});
    const ValueId share = float_op(Opcode::div, {b_.real(DType::f64, 1), count});
    Values merged;
    for (std::size_t i = 0, p = 0; i + 1 < totals.size(); i += 2, p += 3) {
      // The chunk took off the mean as the accumulator holds it: e more than the mean.
      const ValueId e = float_op(Opcode::sub, {wide(part[p + 2]), totals[i]});
      const ValueId sum = wide(part[p]);
      const ValueId d = float_op(Opcode::fma, {added, e, sum});
      const ValueId twice = float_op(Opcode::add, {sum, d});
      const ValueId squares = float_op(Opcode::fma, {e, twice, wide(part[p + 1])});
      merged.push_back(float_op(Opcode::fma, {d, share, totals[i]}));
      const ValueId excess = float_op(Opcode::mul, {float_op(Opcode::mul, {d, d}), share});
      merged.push_back(
          float_op(Opcode::add, {totals[i + 1], float_op(Opcode::sub, {squares, excess})}));
    }
    merged.push_back(count);
    return merged;
  }

  Point moments_step() {
    return [this](BodyExpander& body, const Lanes& group, int, const Values& carried) {
      Values after = carried;
      after.back() =
          b_.compute(Opcode::add, DType::i64, {carried.back(), b_.integer(DType::i64, 1)});
      for (std::size_t copy = 0; copy < static_cast<std::size_t>(group.copies); ++copy) {
        const ValueId x = yielded(body, static_cast<int>(copy), nullptr);
        const ValueId d = float_op(Opcode::sub, {x, after[3 * copy + 2]});
        after[3 * copy] = float_op(Opcode::add, {after[3 * copy], d});
        after[3 * copy + 1] = float_op(Opcode::fma, {d, d, after[3 * copy + 1]});
      }
      return after;
    };
  }

  // exp(x - max), where a row of minus infinities has no difference to take.
  ValueId finite_or_zero(ValueId maximum) {
    const ValueId least = b_.real(stage_.accumulator, -std::numeric_limits<double>::infinity());
    const ValueId is_least = b_.compute(Opcode::equal, DType::boolean, {maximum, least});
    return b_.compute(Opcode::select, stage_.accumulator,
                      {is_least, b_.real(stage_.accumulator, 0), maximum});
  }
  ValueId exponential(ValueId a, ValueId b) {
    return b_.function(kernel::NamedFunction::exp_negative, {float_op(Opcode::sub, {a, b})});
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
    for (int copy = 0; copy < shape_.copies; ++copy) {
      start.push_back(b_.real(stage_.accumulator, -std::numeric_limits<double>::infinity()));
      start.push_back(b_.real(stage_.accumulator, 0));
    }
    const Point point = [&](BodyExpander& body, const Lanes& group, int, const Values& carried) {
      Values after = carried;
      for (int copy = 0; copy < group.copies; ++copy) {
        ValueId& maximum = after[static_cast<std::size_t>(2 * copy)];
        ValueId& sum = after[static_cast<std::size_t>(2 * copy + 1)];
        const ValueId x = yielded(body, copy, nullptr);
        const ValueId next = float_op(Opcode::max, {x, maximum});
        const ValueId center = finite_or_zero(next);
        const ValueId scaled = float_op(Opcode::mul, {sum, exponential(maximum, center)});
        sum = float_op(Opcode::add, {scaled, exponential(x, center)});
        maximum = next;
      }
      return after;
    };
    return guarded(start, [&] { return nest(0, start, nullptr, point); });
  }

  void define_rows(const Values& results) {
    const std::size_t count = loop::result_count(stage_.reduce);
    const bool is_search = stage_.reduce == ReduceOp::argmin || stage_.reduce == ReduceOp::argmax;
    const DType result = is_logical() ? DType::boolean : stage_.accumulator;
    for (std::size_t r = 0; r < count; ++r) {
      Row row{{}, columns_ != nullptr && shape_.lanes > 1};
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
  const Lanes* columns_;
  Lanes one_column_;
  bool may_be_empty_ = false;
  Lanes shape_;
  bool is_long_ = false;         // chains of terms are long enough for chunks
  bool is_short_ = false;        // or so short that lanes need not be wider
  std::size_t chunk_level_ = 0;  // loop that is cut in parts of so many steps
  std::int64_t chunk_steps_ = 1;
};

}  // namespace

void expand_stage(Expansion& expansion, const Stage& stage, const Lanes* columns) {
  StageExpander(expansion, stage, columns).run();
}

}  // namespace inkle::schedule::expansion
