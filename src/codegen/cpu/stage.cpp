// One stage of a loop kernel.
#include "codegen/cpu/stage.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "codegen/cpu/body.h"
#include "codegen/cpu/lane_loop.h"
#include "codegen/cpu/math.h"
#include "codegen/cpu/reduce.h"

namespace inkle::codegen::cpu {

using loop::Opcode;
using loop::ReduceOp;
using schedule::Stage;
using sym::Expr;

namespace {

// Independent copies of a body keep the units busy while a result is on its way (4 cycles of an
// addition, 2 a cycle); a long body has enough to do by itself and would only spill.
constexpr int kLightBody = 16;
constexpr int kMediumBody = 48;

// Terms that one accumulator takes before it is added to its total, which has twice the digits of
// f32: the error of a sum is that of a chain so long. Merging costs as much as about four terms.
constexpr std::int64_t kChunk = 32;
// Fewer terms than this to an accumulator are added up in one chain.
constexpr std::int64_t kShortChain = 64;
// Rows of so few terms to an accumulator have moments whose lanes meet in f32, too: in f64 a layer
// norm of 2048x64 takes 36 us instead of 31, one of 512x768 as long as in f32 (a core with
// AVX-512).
constexpr std::int64_t kShortRow = 4;

class StageEmitter {
 public:
  StageEmitter(KernelCode& code, const Stage& stage, const LaneGroup* columns)
      : code_(code), ir_(code.ir), stage_(stage), columns_(columns), floor_(code.ir.depth()) {
    for (const loop::Dim& dim : stage.inner) {
      may_be_empty_ = may_be_empty_ || sym::bounds(dim.extent).low < 1;
    }
    shape_ = choose_shape();
    find_chunks();
  }

  void run() {
    if (stage_.kind == schedule::StageKind::scan) {
      scan();
      return;
    }
    if (stage_.kind != schedule::StageKind::reduction) {
      guarded({}, [&] { return nest(code_.symbols, 0, {}, nullptr, pointwise()); });
      return;
    }
    if (stage_.reduce == ReduceOp::welford) {
      define_rows(columns_ == nullptr ? welford_rows() : welford_columns());
    } else if (stage_.reduce == ReduceOp::online_softmax) {
      define_rows({columns_ == nullptr ? softmax_rows() : softmax_columns(), stage_.accumulator});
    } else {
      define_rows(simple(stage_.reduce, false, nullptr));
    }
  }

 private:
  using Point = std::function<Values(BodyEmitter&, const LaneGroup&, const Values&)>;
  // What becomes of a yield before it is reduced.
  using Map = std::function<Value*(Value*)>;
  // One register after the other; for columns, of each copy.
  struct Results {
    Values registers;
    DType dtype;
  };

  bool is_serial() const {
    return stage_.kind == schedule::StageKind::scan || stage_.kind == schedule::StageKind::scatter;
  }

  LaneShape choose_shape() const {
    if (columns_ != nullptr) return {columns_->lanes, columns_->copies};
    if (stage_.inner.empty() || is_serial()) return {1, 1};
    LaneShape shape{std::max(code_.schedule.lanes, 1), std::max(code_.schedule.unroll, 1)};
    const int weight = weight_of(stage_.body);
    if (stage_.kind == schedule::StageKind::pointwise) {
      shape.copies = weight <= kLightBody ? std::min(shape.copies, 2) : 1;
    } else if (weight > kLightBody) {
      shape.copies = weight <= kMediumBody ? std::min(shape.copies, 2) : 1;
    }
    if (const auto extent = stage_.inner.back().extent.constant()) {
      const auto least =
          std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(*extent, 1)));
      shape.lanes =
          static_cast<int>(std::min<std::uint64_t>(static_cast<std::uint64_t>(shape.lanes), least));
    }
    if (shape.lanes == 1) shape.copies = 1;
    return shape;
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

  // `run` unless some loop is empty, else `otherwise`.
  Values guarded(const Values& otherwise, const std::function<Values()>& run) {
    if (!may_be_empty_) return run();
    IndexEmitter index(code_, code_.symbols, no_lanes_);
    Value* some = nullptr;
    for (const loop::Dim& dim : stage_.inner) {
      if (sym::bounds(dim.extent).low >= 1) continue;
      Value* positive = ir_.icmp(Compare::gt, index.scalar(dim.extent), ir_.i64(0));
      some = some == nullptr ? positive : ir_.bit_and(some, positive);
    }
    return ir_.branch(some, true, run, [&] { return otherwise; });
  }

  Values at_point(const Symbols& symbols, const LaneGroup& group, const Values& carried,
                  const Point& point) {
    // A scatter reads what its earlier points have written.
    const int floor = stage_.kind == schedule::StageKind::scatter ? ir_.depth() : floor_;
    BodyEmitter body(code_, stage_.body, symbols, group, floor, may_be_empty_);
    return point(body, group, carried);
  }

  Values nest(const Symbols& symbols, std::size_t level, Values carried, const Chunks* chunks,
              const Point& point) {
    const std::size_t last = stage_.inner.size();
    if (level == last) {
      return at_point(symbols, columns_ == nullptr ? no_lanes_ : *columns_, carried, point);
    }
    const loop::Dim& dim = stage_.inner[level];
    IndexEmitter index(code_, symbols, no_lanes_);
    Value* extent = index.scalar(dim.extent);
    const Chunks* here = level == chunk_level_ ? chunks : nullptr;
    if (columns_ == nullptr && level + 1 == last && shape_.lanes > 1) {
      const LaneRange range{ir_.i64(0), extent, dim.extent.constant(), true};
      return lane_loop(code_, dim.variable, range, shape_, std::move(carried), here,
                       [&](const LaneGroup& group, const Values& values) {
                         return at_point(symbols, group, values, point);
                       });
    }
    return scalar_loop(code_, dim.extent, extent, std::move(carried), here,
                       [&](Value* i, const Values& values) {
                         Symbols inside = symbols;
                         inside[dim.variable.node()] = {i, ir_.depth()};
                         return nest(inside, level + 1, values, chunks, point);
                       });
  }

  Point pointwise() {
    return [this](BodyEmitter& body, const LaneGroup& group, const Values&) {
      for (int copy = 0; copy < group.copies; ++copy) {
        for (const loop::Val yield : stage_.body.yields) (void)body.lanes(yield, copy);
      }
      for (int copy = 0; copy < group.copies; ++copy) {
        for (const schedule::StageStore& store : stage_.stores) body.store(store, copy);
      }
      return Values();
    };
  }

  // The yield of a reduction as its accumulator's type.
  Value* yielded(BodyEmitter& body, int copy, const Map& map) {
    const loop::Val yield = stage_.body.yields.at(0);
    const bool logical = stage_.reduce == ReduceOp::any || stage_.reduce == ReduceOp::all;
    Value* x = cast(ir_, body.lanes(yield, copy), stage_.body[yield].dtype,
                    logical ? DType::boolean : stage_.accumulator);
    return map == nullptr ? x : map(x);
  }

  Expr position() const {
    Expr result;
    for (const loop::Dim& dim : stage_.inner) {
      result = result.is_null() ? dim.variable : result * dim.extent + dim.variable;
    }
    return result;
  }

  // Long sums and products are cut in chunks, which meet in f64 and stay so: copies, lanes and the
  // row's result. With `wide_lanes` the lanes of short ones are of f64, too.
  Results simple(ReduceOp op, bool wide_lanes, const Map& map) {
    const Expr where = stage_.inner.empty() ? Expr() : position();
    const int bits = where.is_null() || IndexEmitter::fits32(where) ? 32 : 64;
    Reducer reducer(ir_, op, stage_.accumulator, bits);
    const auto width = static_cast<std::ptrdiff_t>(reducer.registers());
    Values start;
    for (int copy = 0; copy < shape_.copies; ++copy) {
      const Values one = reducer.identity(shape_.lanes);
      start.insert(start.end(), one.begin(), one.end());
    }
    const Point point = [&](BodyEmitter& body, const LaneGroup& group, const Values& carried) {
      Values after = carried;
      for (int copy = 0; copy < group.copies; ++copy) {
        Value* x = yielded(body, copy, map);
        Value* at = nullptr;
        if (reducer.has_position()) {
          at = where.is_null() ? Ir::zero(ir_.integer_type(bits, shape_.lanes))
                               : body.index_lanes(where, copy, bits);
        }
        const auto first = after.begin() + copy * width;
        const Values next = reducer.step(Values(first, first + width), x, at,
                                         columns_ == nullptr ? body.mask(copy) : nullptr);
        std::copy(next.begin(), next.end(), first);
      }
      return after;
    };
    Reducer total(ir_, op, DType::f64, bits);
    if (!is_long_ || !reducer.wants_chunks()) {
      Values sums = guarded(start, [&] { return nest(code_.symbols, 0, start, nullptr, point); });
      if (columns_ != nullptr) {
        return {reducer.has_position() ? every_second(sums) : sums, result_dtype()};
      }
      sums = across_copies(reducer, sums, width);
      if (!wide_lanes) return {{reducer.across_lanes(sums).back()}, result_dtype()};
      return {total.across_lanes({wide(sums[0])}), DType::f64};
    }
    const Chunks chunks{chunk_steps_, [&](const Values&) { return start; },
                        [&](const Values& totals, const Values& part) {
                          Values merged;
                          for (std::size_t i = 0; i < totals.size(); ++i) {
                            merged.push_back(total.merge({totals[i]}, {wide(part[i])})[0]);
                          }
                          return merged;
                        }};
    Values totals;
    for (Value* v : start) totals.push_back(wide(v));
    totals = guarded(totals, [&] { return nest(code_.symbols, 0, totals, &chunks, point); });
    if (columns_ != nullptr) return {totals, DType::f64};
    return {total.across_lanes(across_copies(total, totals, 1)), DType::f64};
  }

  Value* wide(Value* v) { return cast(ir_, v, stage_.accumulator, DType::f64); }

  void scan() {
    Reducer reducer(ir_, stage_.reduce, stage_.accumulator, 32);
    Values start;
    for (int copy = 0; copy < shape_.copies; ++copy) {
      start.push_back(reducer.identity(shape_.lanes)[0]);
    }
    const Point point = [&](BodyEmitter& body, const LaneGroup& group, const Values& carried) {
      Values after = carried;
      for (int copy = 0; copy < group.copies; ++copy) {
        Value*& running = after[static_cast<std::size_t>(copy)];
        running = reducer.step({running}, yielded(body, copy, nullptr), nullptr, nullptr)[0];
      }
      for (int copy = 0; copy < group.copies; ++copy) {
        for (const schedule::StageStore& store : stage_.stores) {
          body.store(store, after[static_cast<std::size_t>(copy)], stage_.accumulator, copy);
        }
      }
      return after;
    };
    (void)guarded(start, [&] { return nest(code_.symbols, 0, start, nullptr, point); });
  }

  static Values every_second(const Values& v) {
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

  // Two passes over the row, which is in the cache the second time: what the mean lacks as the
  // accumulator holds it enters the squares only squared.
  Results welford_rows() {
    const Results sum = simple(ReduceOp::sum, !is_short_, nullptr);
    IndexEmitter index(code_, code_.symbols, no_lanes_);
    Value* count = ir_.i64(1);
    for (const loop::Dim& dim : stage_.inner) count = ir_.mul(count, index.scalar(dim.extent));
    Type* type = register_type(ir_, sum.dtype, 1);
    Value* mean = ir_.fdiv(sum.registers[0], ir_.signed_to_fp(count, type));
    if (may_be_empty_) {
      mean = ir_.select(ir_.icmp(Compare::gt, count, ir_.i64(0)), mean, Ir::zero(type));
    }
    Value* center = ir_.broadcast(cast(ir_, mean, sum.dtype, stage_.accumulator), shape_.lanes);
    const Map square = [&](Value* x) {
      Value* d = ir_.fsub(x, center);
      return ir_.fmul(d, d);
    };
    const Results squares = simple(ReduceOp::sum, !is_short_, square);
    return {{mean, squares.registers[0]}, squares.dtype};
  }

  // The yields of the first element, one for each copy.
  Values first_yields() {
    Symbols symbols = code_.symbols;
    for (const loop::Dim& dim : stage_.inner) {
      symbols[dim.variable.node()] = {ir_.i64(0), ir_.depth()};
    }
    return at_point(symbols, *columns_, {},
                    [&](BodyEmitter& body, const LaneGroup& group, const Values&) {
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
  Results welford_columns() {
    if (stage_.inner.empty()) return {one_deep_column(), stage_.accumulator};
    Type* type = register_type(ir_, DType::f64, shape_.lanes);
    const Values zeros(static_cast<std::size_t>(2 * shape_.copies), Ir::zero(type));
    const Values moments = guarded(zeros, [&] {
      Values totals;
      for (Value* first : first_yields()) {
        totals.push_back(wide(first));
        totals.push_back(Ir::zero(Ir::type_of(totals.front())));
      }
      totals.push_back(Ir::real(register_type(ir_, DType::f64, 1), 0));  // the count
      const Chunks chunks{chunk_steps_, [&](const Values& t) { return begin_moments(t); },
                          [&](const Values& t, const Values& p) { return merge_moments(t, p); }};
      totals = nest(code_.symbols, 0, totals, &chunks, moments_step());
      totals.pop_back();
      return totals;
    });
    return {moments, DType::f64};
  }

  // Columns of one element: it is the mean.
  Values one_deep_column() {
    Values result;
    for (Value* first : first_yields()) {
      result.push_back(first);
      result.push_back(Ir::zero(Ir::type_of(first)));
    }
    return result;
  }

  // Accumulators of a chunk: of each copy the sum of differences, that of their squares and the
  // number that is taken off; then the count.
  Values begin_moments(const Values& totals) {
    Values part;
    for (std::size_t i = 0; i + 1 < totals.size(); i += 2) {
      Value* center = cast(ir_, totals[i], DType::f64, stage_.accumulator);
      Value* zero = Ir::zero(Ir::type_of(center));
      part.insert(part.end(), {zero, zero, center});
    }
    part.push_back(ir_.i64(0));
    return part;
  }

  Values merge_moments(const Values& totals, const Values& part) {
    Type* element = register_type(ir_, DType::f64, 1);
    Value* added = ir_.signed_to_fp(part.back(), element);
    Value* count = ir_.fadd(totals.back(), added);
    Value* share = ir_.broadcast(ir_.fdiv(Ir::real(element, 1), count), shape_.lanes);
    Value* terms = ir_.broadcast(added, shape_.lanes);
    Values merged;
    for (std::size_t i = 0, p = 0; i + 1 < totals.size(); i += 2, p += 3) {
      // The chunk took off the mean as the accumulator holds it: e more than the mean.
      Value* e = ir_.fsub(wide(part[p + 2]), totals[i]);
      Value* sum = wide(part[p]);
      Value* d = ir_.fma(terms, e, sum);
      Value* twice = ir_.fadd(sum, d);
      Value* squares = ir_.fma(e, twice, wide(part[p + 1]));
      merged.push_back(ir_.fma(d, share, totals[i]));
      Value* excess = ir_.fmul(ir_.fmul(d, d), share);
      merged.push_back(ir_.fadd(totals[i + 1], ir_.fsub(squares, excess)));
    }
    merged.push_back(count);
    return merged;
  }

  Point moments_step() {
    return [this](BodyEmitter& body, const LaneGroup& group, const Values& carried) {
      Values after = carried;
      after.back() = ir_.add(carried.back(), ir_.i64(1));
      for (std::size_t copy = 0; copy < static_cast<std::size_t>(group.copies); ++copy) {
        Value* x = yielded(body, static_cast<int>(copy), nullptr);
        Value* d = ir_.fsub(x, after[3 * copy + 2]);
        after[3 * copy] = ir_.fadd(after[3 * copy], d);
        after[3 * copy + 1] = ir_.fma(d, d, after[3 * copy + 1]);
      }
      return after;
    };
  }

  // exp(x - max), where a row of minus infinities has no difference to take.
  Value* finite_or_zero(Value* maximum) {
    Type* type = Ir::type_of(maximum);
    Value* least = Ir::real(type, -std::numeric_limits<double>::infinity());
    return ir_.select(ir_.fcmp(Compare::eq, maximum, least), Ir::zero(type), maximum);
  }
  Value* exponential(Value* x) {
    Value* const operands[] = {x};
    return emit_math(ir_, Opcode::exp, operands);
  }

  Values softmax_rows() {
    Value* maximum = simple(ReduceOp::max, false, nullptr).registers[0];
    Value* center = ir_.broadcast(finite_or_zero(maximum), shape_.lanes);
    const Results sum =
        simple(ReduceOp::sum, false, [&](Value* x) { return exponential(ir_.fsub(x, center)); });
    return {maximum, cast(ir_, sum.registers[0], sum.dtype, stage_.accumulator)};
  }

  Values softmax_columns() {
    Type* type = register_type(ir_, stage_.accumulator, shape_.lanes);
    Value* least = Ir::real(type, -std::numeric_limits<double>::infinity());
    Values start;
    for (int copy = 0; copy < shape_.copies; ++copy) {
      start.push_back(least);
      start.push_back(Ir::zero(type));
    }
    const Point point = [&](BodyEmitter& body, const LaneGroup& group, const Values& carried) {
      Values after = carried;
      for (int copy = 0; copy < group.copies; ++copy) {
        Value*& maximum = after[static_cast<std::size_t>(2 * copy)];
        Value*& sum = after[static_cast<std::size_t>(2 * copy + 1)];
        Value* x = yielded(body, copy, nullptr);
        Value* next = emit_binary(ir_, Opcode::max, stage_.accumulator, x, maximum);
        Value* center = finite_or_zero(next);
        Value* scaled = ir_.fmul(sum, exponential(ir_.fsub(maximum, center)));
        sum = ir_.fadd(scaled, exponential(ir_.fsub(x, center)));
        maximum = next;
      }
      return after;
    };
    return guarded(start, [&] { return nest(code_.symbols, 0, start, nullptr, point); });
  }

  void define_rows(const Results& made) {
    const Values& results = made.registers;
    const std::size_t count = loop::result_count(stage_.reduce);
    const bool position = stage_.reduce == ReduceOp::argmin || stage_.reduce == ReduceOp::argmax;
    const auto& types = std::get<schedule::LoopKernel>(code_.kernel.body).rows;
    for (std::size_t r = 0; r < count; ++r) {
      RowValue row{{}, columns_ != nullptr && shape_.lanes > 1, ir_.depth()};
      const DType to = types.at(stage_.first_row + r);
      for (std::size_t i = r; i < results.size(); i += count) {
        row.copies.push_back(
            position
                ? ir_.resize_signed(results[i],
                                    register_type(ir_, DType::i64, Ir::lanes_of(results[i])))
                : cast(ir_, cast(ir_, results[i], made.dtype, result_dtype()), result_dtype(), to));
      }
      code_.rows[stage_.first_row + r] = std::move(row);
    }
  }

  DType result_dtype() const {
    const bool logical = stage_.reduce == ReduceOp::any || stage_.reduce == ReduceOp::all;
    return logical ? DType::boolean : stage_.accumulator;
  }

  KernelCode& code_;
  Ir& ir_;
  const Stage& stage_;
  const LaneGroup* columns_;
  LaneGroup no_lanes_;
  int floor_;
  bool may_be_empty_ = false;
  LaneShape shape_;
  bool is_long_ = false;         // chains of terms are long enough for chunks
  bool is_short_ = false;        // or so short that lanes need not be wider
  std::size_t chunk_level_ = 0;  // loop that is cut in parts of so many steps
  std::int64_t chunk_steps_ = 1;
};

}  // namespace

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

void emit_stage(KernelCode& code, const Stage& stage, const LaneGroup* columns) {
  StageEmitter(code, stage, columns).run();
}

}  // namespace inkle::codegen::cpu
