// Attention as one flash-style kernel: no matrix of scores in memory. An iteration handles a block
// of q rows of one head:
//
//   q := scale * rows, f32                                    scratch [rows][head_dim]
//   for each block of kv columns
//     k := columns transposed                                 scratch [head_dim][columns]
//     for each group of kRows rows
//       s := q k                                              registers: kRows x kVectors
//       maximum, alpha := exp(old - new), s := exp(s - maximum), sum := sum * alpha + sum(s)
//       out := out * alpha + s v                              registers: kRows x kVectors
//   out := out / sum
//
// Rows are padded to whole groups; a row's columns at and beyond its limit (the end, or itself when
// causal) count as minus infinity, and blocks beyond all limits are skipped.
#include <algorithm>
#include <limits>

#include "base/error.h"
#include "codegen/cpu/attention_tiles.h"
#include "codegen/cpu/math.h"
#include "codegen/cpu/math_parts.h"

namespace inkle::codegen::cpu {

using schedule::AttentionKernel;
using sym::Expr;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

class AttentionEmitter : AttentionTiles {
 public:
  AttentionEmitter(KernelCode& code, const AttentionKernel& kernel) : AttentionTiles(code, kernel) {
    choose_blocks();
    read_layouts();
    pack_v_ = kernel_.dtype != DType::f32 || !layouts_[2].contiguous || value_width_ != value_dim_;
  }

  Expr run(const Values& arguments) {
    const std::int64_t bytes = place_scratch(arguments[2]);
    prepare_dropout();
    Value* q_length = sizes_(kernel_.q_length);
    Value* blocks = ir_.sdiv(ir_.add(q_length, i64(row_block_ - 1)), i64(row_block_));
    blocks = ir_.smax(blocks, i64(1));
    Value* heads = ir_.smax(sizes_(kernel_.heads), i64(1));
    Value* share = ir_.smax(ir_.sdiv(heads, ir_.smax(sizes_(kernel_.kv_heads), i64(1))), i64(1));
    ir_.loop(arguments[3], arguments[4], i64(1), {}, false, [&](Value* n, const Values&) {
      Value* rest = ir_.udiv(n, blocks);
      batch_ = ir_.udiv(rest, heads);
      head_ = ir_.urem(rest, heads);
      kv_head_ = ir_.udiv(head_, share);
      first_row_ = ir_.mul(ir_.urem(n, blocks), i64(row_block_));
      rows_ = ir_.smin(ir_.sub(q_length, first_row_), i64(row_block_));
      iteration();
      return Values();
    });
    return kernel_.q_length.context().constant(bytes);
  }

 private:
  void choose_blocks() {
    const auto q_length = kernel_.q_length.constant();
    row_block_ = std::max<std::int64_t>(code_.schedule.q_block, 1);
    std::int64_t rows = row_block_;
    if (q_length) rows = std::clamp<std::int64_t>(*q_length, 1, rows);
    group_ = static_cast<int>(std::min<std::int64_t>(kRows, rows));
    padded_rows_ = round_up(rows, group_);
    column_block_ = column_block();
  }

  // Constant offsets: all sizes are.
  std::int64_t place_scratch(Value* base) {
    std::int64_t offset = schedule::kStatusBytes;
    const auto array = [&](std::int64_t floats) { return place(base, offset, floats); };
    q_ = array(padded_rows_ * head_dim_);
    k_ = array(head_dim_ * column_block_);
    if (pack_v_) v_ = array(column_block_ * value_width_);
    s_ = array(group_ * column_block_);
    out_ = array(padded_rows_ * value_width_);
    maximum_ = array(padded_rows_);
    sum_ = array(padded_rows_);
    alpha_ = array(group_);
    if (kernel_.dropout) factors_ = array(column_block_);
    return offset;
  }

  void iteration() {
    Value* groups = ir_.sdiv(ir_.add(rows_, i64(group_ - 1)), i64(group_));
    prepare_rows(ir_.mul(groups, i64(group_)));
    Value* end = sizes_(kernel_.kv_length);
    if (kernel_.is_causal) end = ir_.smin(end, ir_.add(first_row_, rows_));
    loop(i64(0), end, column_block_, [&](Value* first) {
      Value* count = ir_.smin(ir_.sub(end, first), i64(column_block_));
      pack_transposed(layouts_[1], head_dim_, k_, column_block_, first, count);
      if (pack_v_) pack_values(first, count);
      loop(i64(0), groups, 1, [&](Value* g) {
        Value* row = ir_.mul(g, i64(group_));
        Value* columns = count;
        if (kernel_.is_causal) {
          Value* last = ir_.add(ir_.add(first_row_, row), i64(group_));
          columns = ir_.smin(count, ir_.sub(last, first));
        }
        ir_.branch(
            ir_.icmp(Compare::gt, columns, i64(0)), true,
            [&] {
              scores(row, columns);
              softmax(row, first, columns);
              accumulate(row, first, columns);
              return Values();
            },
            [] { return Values(); });
      });
    });
    finish_rows();
  }

  void prepare_rows(Value* padded) {
    const Layout& layout = layouts_[0];
    Value* scale = Ir::real(vector_, kernel_.scale);
    loop(i64(0), padded, 1, [&](Value* r) {
      // Padding repeats the last row: finite work whose result nobody reads.
      Value* row = ir_.add(first_row_, ir_.smin(r, ir_.sub(rows_, i64(1))));
      Value* from = row_address(layout, head_, row);
      Value* to = at(q_, ir_.mul(r, i64(head_dim_)));
      for (std::int64_t d = 0; d < head_dim_; d += lanes_) {
        Value* mask = tail_mask(d, head_dim_);
        Value* q = ir_.fmul(load_lanes(layout, from, i64(d), mask), scale);
        store_tail(q, at(to, i64(d)), mask);
      }
      for (std::int64_t d = 0; d < value_width_; d += lanes_) {
        ir_.store(Ir::zero(vector_), at(out_, ir_.add(ir_.mul(r, i64(value_width_)), i64(d))), 4);
      }
      ir_.store(Ir::real(float_, -kInfinity), at(maximum_, r), 4);
      ir_.store(Ir::zero(float_), at(sum_, r), 4);
    });
  }

  void pack_values(Value* first, Value* count) {
    const Layout& layout = layouts_[2];
    loop(i64(0), count, 1, [&](Value* c) {
      Value* from = row_address(layout, kv_head_, ir_.add(first, c));
      Value* to = at(v_, ir_.mul(c, i64(value_width_)));
      for (std::int64_t d = 0; d < value_width_; d += lanes_) {
        ir_.store(load_lanes(layout, from, i64(d), tail_mask(d, value_dim_)), at(to, i64(d)), 4);
      }
    });
  }

  void scores(Value* row, Value* columns) {
    const std::int64_t tile = std::int64_t{lanes_} * vectors_;
    Value* q = at(q_, ir_.mul(row, i64(head_dim_)));
    loop(i64(0), columns, tile, [&](Value* c) {
      const auto count = static_cast<std::size_t>(group_ * vectors_);
      Value* k = at(k_, c);
      const Values sums = ir_.loop(i64(0), i64(head_dim_), i64(1), Values(count, Ir::zero(vector_)),
                                   true, [&](Value* d, const Values& before) {
                                     Value* panel = at(k, ir_.mul(d, i64(column_block_)));
                                     return multiply(before, group_, vectors_, panel, [&](int r) {
                                       return at(q, ir_.add(d, i64(r * head_dim_)));
                                     });
                                   });
      for (int r = 0; r < group_; ++r) {
        for (int v = 0; v < vectors_; ++v) {
          Value* to = ir_.add(c, i64(r * column_block_ + v * lanes_));
          ir_.store(sums[static_cast<std::size_t>(r * vectors_ + v)], at(s_, to), 4);
        }
      }
    });
  }

  // The score at column c of the block, minus infinity where the row does not look.
  Value* masked_score(Value* s, Value* limit, Value* c, Value* mask_row, Value* first) {
    Value* valid = lanes_before(limit, c);
    if (mask_row != nullptr) {
      Value* m = mask_lanes(mask_row, ir_.add(first, c), valid);
      s = kernel_.mask_dtype == DType::boolean ? ir_.select(m, s, Ir::real(vector_, kernel_.hidden))
                                               : ir_.fadd(s, m);
    }
    return ir_.select(valid, s, Ir::real(vector_, -kInfinity));
  }

  void softmax(Value* row, Value* first, Value* columns) {
    loop(i64(0), i64(group_), 1, [&](Value* r) {
      Value* line = at(s_, ir_.mul(r, i64(column_block_)));
      Value* place = ir_.add(row, r);
      Value* limit = columns;
      Value* absolute = ir_.add(first_row_, ir_.smin(place, ir_.sub(rows_, i64(1))));
      if (kernel_.is_causal) {
        limit = ir_.smin(limit, ir_.sub(ir_.add(absolute, i64(1)), first));
      }
      Value* mask_row = nullptr;
      if (kernel_.has_mask) mask_row = row_address(layouts_[kernel_.mask_at()], head_, absolute);
      Value* least = Ir::real(vector_, -kInfinity);
      Value* most = ir_.loop(
          i64(0), columns, i64(lanes_), {least}, true, [&](Value* c, const Values& before) {
            Value* s = masked_score(load_vector(at(line, c)), limit, c, mask_row, first);
            ir_.store(s, at(line, c), 4);
            return Values{maximum(s, before[0])};
          })[0];
      Value* old = load_float(at(maximum_, place));
      Value* highest =
          maximum(across(most, [&](Value* a, Value* b) { return maximum(a, b); }), old);
      // A row that has seen nothing: any finite number does.
      Value* nothing = ir_.fcmp(Compare::eq, highest, Ir::real(float_, -kInfinity));
      Value* centre = ir_.select(nothing, Ir::zero(float_), highest);
      Value* alpha = exp_of_small(ir_, ir_.fsub(old, centre));
      Value* centres = ir_.broadcast(centre, lanes_);
      if (kernel_.dropout) draw_factors(factors_, absolute, first, columns);
      Value* total = ir_.loop(i64(0), columns, i64(lanes_), {Ir::zero(vector_)}, true,
                              [&](Value* c, const Values& before) {
                                Value* s = load_vector(at(line, c));
                                Value* p = exp_of_small(ir_, ir_.fsub(s, centres));
                                Value* weight = p;
                                if (kernel_.dropout) {
                                  weight = ir_.fmul(p, load_vector(at(factors_, c)));
                                }
                                ir_.store(weight, at(line, c), 4);
                                return Values{ir_.fadd(before[0], p)};
                              })[0];
      Value* sum = across(total, [&](Value* a, Value* b) { return ir_.fadd(a, b); });
      Value* before = ir_.fmul(load_float(at(sum_, place)), alpha);
      ir_.store(ir_.fadd(before, sum), at(sum_, place), 4);
      ir_.store(highest, at(maximum_, place), 4);
      ir_.store(alpha, at(alpha_, r), 4);
    });
  }

  void accumulate(Value* row, Value* first, Value* columns) {
    Value* v = v_;
    Value* stride = i64(value_width_);
    if (!pack_v_) {
      v = row_address(layouts_[2], kv_head_, first);
      stride = layouts_[2].strides[2];
    }
    const auto all = static_cast<int>(value_width_ / lanes_);
    const int tiles = (all + vectors_ - 1) / vectors_;
    const int width = (all + tiles - 1) / tiles;
    for (int at_vector = 0; at_vector < all; at_vector += width) {
      const int vectors = std::min(width, all - at_vector);
      accumulate_tile(
          at(v, i64(std::int64_t{at_vector} * lanes_)), stride,
          at(out_, ir_.add(ir_.mul(row, i64(value_width_)), i64(std::int64_t{at_vector} * lanes_))),
          vectors, columns);
    }
  }

  void accumulate_tile(Value* v, Value* stride, Value* out, int vectors, Value* columns) {
    Values sums;
    for (int r = 0; r < group_; ++r) {
      Value* alpha = ir_.broadcast(load_float(at(alpha_, i64(r))), lanes_);
      for (int u = 0; u < vectors; ++u) {
        sums.push_back(ir_.fmul(load_vector(at(out, i64(r * value_width_ + u * lanes_))), alpha));
      }
    }
    sums = ir_.loop(i64(0), columns, i64(1), sums, true, [&](Value* c, const Values& before) {
      return multiply(before, group_, vectors, at(v, ir_.mul(c, stride)),
                      [&](int r) { return at(s_, ir_.add(c, i64(r * column_block_))); });
    });
    for (int r = 0; r < group_; ++r) {
      for (int u = 0; u < vectors; ++u) {
        ir_.store(sums[static_cast<std::size_t>(r * vectors + u)],
                  at(out, i64(r * value_width_ + u * lanes_)), 4);
      }
    }
  }

  void finish_rows() {
    const Layout& layout = layouts_[3];
    loop(i64(0), rows_, 1, [&](Value* r) {
      Value* row = ir_.add(first_row_, r);
      Value* to = row_address(layout, head_, row);
      Value* sum = load_float(at(sum_, r));
      Value* empty = ir_.fcmp(Compare::eq, sum, Ir::zero(float_));
      // 0 / 1 is the 0 that `safe` asks for, and that no columns at all give; 0 / 0 the NaN
      // otherwise.
      if (!kernel_.safe) {
        empty = ir_.icmp(Compare::le, sizes_(kernel_.kv_length), i64(0));
      }
      Value* divisor = ir_.select(empty, Ir::real(float_, 1), sum);
      divisor = ir_.broadcast(divisor, lanes_);
      for (std::int64_t d = 0; d < value_dim_; d += lanes_) {
        Value* from = at(out_, ir_.add(ir_.mul(r, i64(value_width_)), i64(d)));
        store_lanes(layout, to, d, ir_.fdiv(load_vector(from), divisor), tail_mask(d, value_dim_));
      }
      if (kernel_.has_lse) {
        Value* lse = ir_.fadd(load_float(at(maximum_, r)), log_f32(ir_, sum));
        const Layout& place = layouts_[kernel_.lse_at()];
        ir_.store(cast(ir_, lse, DType::f32, place.dtype), row_address(place, head_, row),
                  static_cast<int>(abi::size_of(place.dtype)));
      }
      if (kernel_.has_statistics) {
        const Layout& place = layouts_[kernel_.statistics_at()];
        Value* pair = row_address(place, head_, row);
        ir_.store(load_float(at(maximum_, r)), pair, 4);
        ir_.store(sum, at(pair, place.strides[3]), 4);
      }
    });
  }

  int group_ = 0;  // rows of a register block
  std::int64_t row_block_ = 0;
  std::int64_t padded_rows_ = 0;
  std::int64_t column_block_ = 0;
  bool pack_v_ = false;
  // Scratch.
  Value* q_ = nullptr;
  Value* k_ = nullptr;
  Value* v_ = nullptr;
  Value* s_ = nullptr;
  Value* out_ = nullptr;
  Value* maximum_ = nullptr;
  Value* sum_ = nullptr;
  Value* alpha_ = nullptr;
  Value* factors_ = nullptr;
  // Of the iteration.
  Value* first_row_ = nullptr;
  Value* rows_ = nullptr;
};

}  // namespace

EmittedKernel emit_attention(KernelCode& code, const AttentionKernel& attention,
                             const Values& arguments) {
  if (attention.is_gradient) return emit_attention_gradient(code, attention, arguments);
  AttentionEmitter emitter(code, attention);
  return {emitter.run(arguments), false};
}

}  // namespace inkle::codegen::cpu
