// The gradient of attention, flash style: weights are computed again, a block of rows by a block of
// columns at a time, from the statistics that the forward has kept. An iteration handles a kv head
// of a batch:
//
//   dq := 0
//   for each block of columns j
//     kt, vt := keys and values transposed; k := scale * keys        scratch
//     dk, dv := 0                                                    scratch
//     for each head that reads these keys, each block of rows i
//       q := scale * rows, g := rows of the gradient                 scratch
//       for each group of rows
//         s := q kt, dp := g vt                                      [rows][columns]
//         p := exp(s - maximum) / sum, p' := p * factor
//         ds := p * (dp * factor - level), level := sum over d of g * out, or, where one block has
//           all columns, over them of p * dp * factor
//       dv := dv + p'^T g
//       dk := dk + ds^T q
//       dq[i] := dq[i] + ds k
//     write dk, dv
//
// dq gathers in the result itself where that is f32, else in scratch. A row that is hidden from the
// block (causal) takes no part in it.
#include <algorithm>
#include <limits>

#include "codegen/cpu/attention_tiles.h"
#include "codegen/cpu/math.h"

namespace inkle::codegen::cpu {

using schedule::AttentionKernel;
using sym::Expr;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

class AttentionGradientEmitter : AttentionTiles {
 public:
  AttentionGradientEmitter(KernelCode& code, const AttentionKernel& kernel)
      : AttentionTiles(code, kernel) {
    head_width_ = round_up(head_dim_, lanes_);
    column_block_ = column_block();
    row_block_ = std::max<std::int64_t>(code.schedule.q_block, 1);
    if (const auto length = kernel.q_length.constant()) {
      row_block_ = std::clamp<std::int64_t>(*length, 1, row_block_);
    }
    padded_rows_ = round_up(row_block_, kRows);
    // A line more, so that the rows of one column are not all in the same sets of a cache, and that
    // the last group of columns does not read the next row.
    line_ = column_block_ + round_up(kMostRows, lanes_);
    read_layouts();
    const Layout& dq = layouts_[kDq];
    gathers_in_place_ = dq.dtype == DType::f32 && dq.contiguous && head_width_ == head_dim_;
  }

  Expr run(const Values& arguments) {
    const std::int64_t bytes = place_scratch(arguments[2]);
    prepare_dropout();
    q_length_ = sizes_(kernel_.q_length);
    Value* kv_heads = ir_.smax(sizes_(kernel_.kv_heads), i64(1));
    is_whole_ = ir_.icmp(Compare::le, sizes_(kernel_.kv_length), i64(column_block_));
    share_ = ir_.smax(ir_.sdiv(sizes_(kernel_.heads), kv_heads), i64(1));
    loop(arguments[3], arguments[4], 1, [&](Value* n) {
      batch_ = ir_.udiv(n, kv_heads);
      kv_head_ = ir_.urem(n, kv_heads);
      first_head_ = ir_.mul(kv_head_, share_);
      iteration();
    });
    Expr total = kernel_.q_length.context().constant(bytes);
    if (!gathers_in_place_) {
      const Expr rows = sym::floordiv(kernel_.heads, kernel_.kv_heads) * kernel_.q_length;
      total = total + rows * (head_width_ * 4);
    }
    return total;
  }

 private:
  static constexpr std::size_t kOut = 3, kGrad = 4, kDq = 6, kDk = 7, kDv = 8;

  std::int64_t place_scratch(Value* base) {
    std::int64_t offset = schedule::kStatusBytes;
    const auto array = [&](std::int64_t floats) { return place(base, offset, floats); };
    q_ = array(padded_rows_ * head_width_);
    g_ = array(padded_rows_ * value_width_);
    kt_ = array(head_dim_ * column_block_);
    vt_ = array(value_dim_ * column_block_);
    k_ = array(column_block_ * head_width_);
    p_ = array(padded_rows_ * line_);
    ds_ = array(padded_rows_ * line_);
    // Whole groups of columns; those of the last group beyond the block are never read.
    dk_ = array((column_block_ + kMostRows) * head_width_);
    dv_ = array((column_block_ + kMostRows) * value_width_);
    if (kernel_.dropout) factors_ = array(column_block_);
    dq_ = place(base, offset, 0);
    return offset;
  }

  void for_each_head(const std::function<void(Value* number)>& body) {
    loop(i64(0), share_, 1, [&](Value* n) {
      head_ = ir_.add(first_head_, n);
      body(n);
    });
  }

  // Where row `row` of dq gathers; `number` of the head among those of the iteration.
  Value* gathered(Value* number, Value* row) {
    if (gathers_in_place_) return row_address(layouts_[kDq], head_, row);
    Value* place = ir_.add(ir_.mul(number, q_length_), row);
    return at(dq_, ir_.mul(place, i64(head_width_)));
  }

  void iteration() {
    for_each_head([&](Value* number) {
      loop(i64(0), q_length_, 1, [&](Value* r) { clear(gathered(number, r), head_width_); });
    });
    Value* end = sizes_(kernel_.kv_length);
    loop(i64(0), end, column_block_, [&](Value* first) {
      Value* count = ir_.smin(ir_.sub(end, first), i64(column_block_));
      pack_transposed(layouts_[1], head_dim_, kt_, column_block_, first, count);
      pack_transposed(layouts_[2], value_dim_, vt_, column_block_, first, count);
      loop(i64(0), count, 1, [&](Value* c) {
        pack_row(layouts_[1], head_dim_, kernel_.scale, kv_head_, ir_.add(first, c),
                 at(k_, ir_.mul(c, i64(head_width_))));
        clear(at(dk_, ir_.mul(c, i64(head_width_))), head_width_);
        clear(at(dv_, ir_.mul(c, i64(value_width_))), value_width_);
      });
      for_each_head([&](Value* number) {
        // Earlier rows see no column of the block.
        Value* begin = i64(0);
        if (kernel_.is_causal) {
          begin = ir_.mul(ir_.udiv(first, i64(row_block_)), i64(row_block_));
        }
        loop(begin, q_length_, row_block_, [&](Value* row) {
          first_row_ = row;
          rows_ = ir_.smin(ir_.sub(q_length_, row), i64(row_block_));
          block(number, first, count);
        });
      });
      loop(i64(0), count, 1, [&](Value* c) {
        Value* column = ir_.add(first, c);
        write_row(layouts_[kDk], kv_head_, column, at(dk_, ir_.mul(c, i64(head_width_))),
                  head_dim_);
        write_row(layouts_[kDv], kv_head_, column, at(dv_, ir_.mul(c, i64(value_width_))),
                  value_dim_);
      });
    });
    if (gathers_in_place_) return;
    for_each_head([&](Value* number) {
      loop(i64(0), q_length_, 1,
           [&](Value* r) { write_row(layouts_[kDq], head_, r, gathered(number, r), head_dim_); });
    });
  }

  void clear(Value* row, std::int64_t width) {
    for (std::int64_t d = 0; d < width; d += lanes_) {
      ir_.store(Ir::zero(vector_), at(row, i64(d)), 4);
    }
  }

  // to[...] := factor * the row, f32, whole vectors.
  void pack_row(const Layout& layout, std::int64_t features, double factor, Value* head, Value* row,
                Value* to) {
    Value* from = row_address(layout, head, row);
    for (std::int64_t d = 0; d < features; d += lanes_) {
      Value* v = load_lanes(layout, from, i64(d), tail_mask(d, features));
      if (factor != 1) v = ir_.fmul(v, Ir::real(vector_, factor));
      ir_.store(v, at(to, i64(d)), 4);
    }
  }

  void write_row(const Layout& layout, Value* head, Value* row, Value* from,
                 std::int64_t features) {
    Value* to = row_address(layout, head, row);
    for (std::int64_t d = 0; d < features; d += lanes_) {
      store_lanes(layout, to, d, load_vector(at(from, i64(d))), tail_mask(d, features));
    }
  }

  // The columns that some row of a group of rows sees.
  Value* seen(Value* row, Value* first, Value* count) {
    if (!kernel_.is_causal) return count;
    Value* last = ir_.add(ir_.add(first_row_, row), i64(kRows));
    return ir_.smin(count, ir_.sub(last, first));
  }

  void block(Value* number, Value* first, Value* count) {
    Value* groups = ir_.sdiv(ir_.add(rows_, i64(kRows - 1)), i64(kRows));
    loop(i64(0), ir_.mul(groups, i64(kRows)), 1, [&](Value* r) {
      // Padding repeats the last row: finite work whose result nobody reads.
      Value* row = ir_.add(first_row_, ir_.smin(r, ir_.sub(rows_, i64(1))));
      pack_row(layouts_[0], head_dim_, kernel_.scale, head_, row,
               at(q_, ir_.mul(r, i64(head_width_))));
      pack_row(layouts_[kGrad], value_dim_, 1, head_, row, at(g_, ir_.mul(r, i64(value_width_))));
    });
    loop(i64(0), groups, 1, [&](Value* g) {
      Value* row = ir_.mul(g, i64(kRows));
      Value* columns = seen(row, first, count);
      ir_.branch(
          ir_.icmp(Compare::gt, columns, i64(0)), true,
          [&] {
            tiles(row, columns, q_, head_width_, head_dim_, kt_, p_);
            tiles(row, columns, g_, value_width_, value_dim_, vt_, ds_);
            weigh(row, first, columns, count);
            add_to_rows(number, row, columns);
            return Values();
          },
          [] { return Values(); });
    });
    add_to_columns(dv_, value_width_, p_, g_, first, count);
    add_to_columns(dk_, head_width_, ds_, q_, first, count);
  }

  // to[row + r][c] := sum over k of left[row + r][k] * panel[k][c].
  void tiles(Value* row, Value* columns, Value* left, std::int64_t width, std::int64_t features,
             Value* panel, Value* to) {
    Value* from = at(left, ir_.mul(row, i64(width)));
    Value* out = at(to, ir_.mul(row, i64(line_)));
    loop(i64(0), columns, std::int64_t{lanes_} * vectors_, [&](Value* c) {
      const Values zeros(static_cast<std::size_t>(kRows * vectors_), Ir::zero(vector_));
      Value* corner = at(panel, c);
      const Values sums =
          ir_.loop(i64(0), i64(features), i64(1), zeros, true, [&](Value* d, const Values& before) {
            return multiply(before, kRows, vectors_, at(corner, ir_.mul(d, i64(column_block_))),
                            [&](int r) { return at(from, ir_.add(d, i64(r * width))); });
          });
      for (int r = 0; r < kRows; ++r) {
        for (int v = 0; v < vectors_; ++v) {
          ir_.store(sums[static_cast<std::size_t>(r * vectors_ + v)],
                    at(out, ir_.add(c, i64(r * line_ + v * lanes_))), 4);
        }
      }
    });
  }

  // Scores become the weights that the values got, gradients of weights those of scores. Columns
  // that only rows of later groups see become 0, too.
  void weigh(Value* row, Value* first, Value* columns, Value* count) {
    loop(i64(0), i64(kRows), 1, [&](Value* r) {
      Value* place = ir_.add(row, r);
      Value* absolute = ir_.add(first_row_, ir_.smin(place, ir_.sub(rows_, i64(1))));
      Value* limit = columns;
      if (kernel_.is_causal) {
        limit = ir_.smin(limit, ir_.sub(ir_.add(absolute, i64(1)), first));
      }
      Value* mask_row = nullptr;
      if (kernel_.has_mask) {
        mask_row = row_address(layouts_[kernel_.mask_at()], head_, absolute);
      }
      if (kernel_.dropout) draw_factors(factors_, absolute, first, count);
      const RowValues of = row_values(place, absolute);
      Value* scores = at(p_, ir_.mul(place, i64(line_)));
      Value* gradients = at(ds_, ir_.mul(place, i64(line_)));
      // Weights to the place of the scores; their gradients, and undropped weights, to be read
      // below.
      Value* undropped = kernel_.dropout ? factors_ : scores;
      Value* total = ir_.loop(
          i64(0), count, i64(lanes_), {Ir::zero(vector_)}, false,
          [&](Value* c, const Values& before) {
            Value* s = visible(load_vector(at(scores, c)), limit, c, mask_row, first).score;
            Value* p = ir_.fmul(exp_of_small(ir_, ir_.fsub(s, of.centre)), of.inverse);
            Value* dp = load_vector(at(gradients, c));
            if (kernel_.dropout) {
              Value* factor = load_vector(at(factors_, c));
              ir_.store(ir_.fmul(p, factor), at(scores, c), 4);
              dp = ir_.fmul(dp, factor);
            }
            dp = ir_.select(lanes_before(limit, c), dp, Ir::zero(vector_));
            ir_.store(p, at(undropped, c), 4);
            ir_.store(dp, at(gradients, c), 4);
            return Values{ir_.fma(p, dp, before[0])};
          })[0];
      // Where the block has all columns their sum is the better one: it cancels to the last bits.
      Value* sum = across(total, [&](Value* a, Value* b) { return ir_.fadd(a, b); });
      Value* level = ir_.broadcast(ir_.select(is_whole_, sum, of.level), lanes_);
      loop(i64(0), count, lanes_, [&](Value* c) {
        Value* p = load_vector(at(undropped, c));
        Value* ds = ir_.fmul(p, ir_.fsub(load_vector(at(gradients, c)), level));
        Value* passes = visible(p, limit, c, mask_row, first).passes;
        ir_.store(ir_.select(passes, ds, Ir::zero(vector_)), at(gradients, c), 4);
      });
    });
  }

  struct Visible {
    Value *score, *passes;  // the score with the mask; whether its gradient passes
  };
  Visible visible(Value* s, Value* limit, Value* c, Value* mask_row, Value* first) {
    Value* passes = lanes_before(limit, c);
    Value* none = Ir::real(vector_, -kInfinity);
    if (mask_row == nullptr) return {ir_.select(passes, s, none), passes};
    Value* m = mask_lanes(mask_row, ir_.add(first, c), passes);
    if (kernel_.mask_dtype != DType::boolean) {
      return {ir_.select(passes, ir_.fadd(s, m), none), passes};
    }
    s = ir_.select(m, s, Ir::real(vector_, kernel_.hidden));
    return {ir_.select(passes, s, none), ir_.bit_and(passes, m)};
  }

  struct RowValues {
    Value *centre, *inverse;  // in all lanes
    Value* level;
  };
  RowValues row_values(Value* place, Value* absolute) {
    const Layout& layout = layouts_[kernel_.statistics_at()];
    Value* pair = row_address(layout, head_, absolute);
    Value* most = load_float(pair);
    Value* sum = load_float(at(pair, layout.strides[3]));
    // A row that has seen nothing: 0 * 0, or with `safe` unset 0 * infinity.
    Value* nothing = ir_.fcmp(Compare::eq, most, Ir::real(float_, -kInfinity));
    Value* centre = ir_.select(nothing, Ir::zero(float_), most);
    Value* inverse = ir_.fdiv(Ir::real(float_, 1), sum);
    if (kernel_.safe) {
      Value* is_empty = ir_.fcmp(Compare::eq, sum, Ir::zero(float_));
      inverse = ir_.select(is_empty, Ir::zero(float_), inverse);
    }
    Value* grad = at(g_, ir_.mul(place, i64(value_width_)));
    Value* out = row_address(layouts_[kOut], head_, absolute);
    Value* total = Ir::zero(vector_);
    for (std::int64_t d = 0; d < value_dim_; d += lanes_) {
      Value* o = load_lanes(layouts_[kOut], out, i64(d), tail_mask(d, value_dim_));
      total = ir_.fma(load_vector(at(grad, i64(d))), o, total);
    }
    Value* level = across(total, [&](Value* a, Value* b) { return ir_.fadd(a, b); });
    return {ir_.broadcast(centre, lanes_), ir_.broadcast(inverse, lanes_), level};
  }

  // As many vectors of a row as registers hold of a few rows; calls body(first vector, vectors,
  // rows).
  void for_each_width(std::int64_t width, const std::function<void(int, int, int)>& body) {
    const auto all = static_cast<int>(width / lanes_);
    const int parts = (all + vectors_ - 1) / vectors_;
    const int most = (all + parts - 1) / parts;
    for (int v = 0; v < all; v += most) {
      const int vectors = std::min(most, all - v);
      body(v, vectors, std::min(kRows * vectors_ / vectors, kMostRows));
    }
  }

  // to[r] := to[r] + sum over k in [begin, end) of element(r, k) * panel[k], `vectors` of rows that
  // are `stride` apart.
  void add_product(int rows, int vectors, const std::function<Value*(int)>& to, Value* begin,
                   Value* end, Value* panel, std::int64_t width,
                   const std::function<Value*(int, Value*)>& element) {
    Values sums;
    for (int r = 0; r < rows; ++r) {
      for (int u = 0; u < vectors; ++u) {
        sums.push_back(load_vector(at(to(r), i64(std::int64_t{u} * lanes_))));
      }
    }
    sums = ir_.loop(begin, end, i64(1), sums, false, [&](Value* k, const Values& before) {
      return multiply(before, rows, vectors, at(panel, ir_.mul(k, i64(width))),
                      [&](int r) { return element(r, k); });
    });
    for (int r = 0; r < rows; ++r) {
      for (int u = 0; u < vectors; ++u) {
        ir_.store(sums[static_cast<std::size_t>(r * vectors + u)],
                  at(to(r), i64(std::int64_t{u} * lanes_)), 4);
      }
    }
  }

  // Of a group of kRows rows. Rows of the padding gather nowhere.
  void add_to_rows(Value* number, Value* row, Value* columns) {
    Value* from = at(ds_, ir_.mul(row, i64(line_)));
    for_each_width(head_width_, [&](int v, int vectors, int) {
      Value* panel = at(k_, i64(std::int64_t{v} * lanes_));
      const auto element = [&](int r, Value* c) { return at(from, ir_.add(c, i64(r * line_))); };
      const auto add = [&](int rows) {
        const auto to = [&](int r) {
          Value* absolute = ir_.add(ir_.add(first_row_, row), i64(r));
          return at(gathered(number, absolute), i64(std::int64_t{v} * lanes_));
        };
        add_product(rows, vectors, to, i64(0), columns, panel, head_width_, element);
      };
      ir_.branch(
          ir_.icmp(Compare::le, ir_.add(row, i64(kRows)), rows_), true,
          [&] {
            add(kRows);
            return Values();
          },
          [&] {
            // The last group, a row at a time.
            Value* first = from;
            loop(i64(0), ir_.sub(rows_, row), 1, [&](Value* r) {
              Value* absolute = ir_.add(ir_.add(first_row_, row), r);
              Value* to = at(gathered(number, absolute), i64(std::int64_t{v} * lanes_));
              Value* line = at(first, ir_.mul(r, i64(line_)));
              add_product(
                  1, vectors, [&](int) { return to; }, i64(0), columns, panel, head_width_,
                  [&](int, Value* c) { return at(line, c); });
            });
            return Values();
          });
    });
  }

  // to[c] := to[c] + sum over rows r of weights[r][c] * rows[r].
  void add_to_columns(Value* to, std::int64_t width, Value* weights, Value* rows, Value* first,
                      Value* count) {
    for_each_width(width, [&](int v, int vectors, int group) {
      Value* panel = at(rows, i64(std::int64_t{v} * lanes_));
      loop(i64(0), count, group, [&](Value* c) {
        Value* begin = i64(0);
        if (kernel_.is_causal) {  // the first row that sees column c
          begin = ir_.smax(ir_.sub(ir_.add(first, c), first_row_), i64(0));
          begin = ir_.smin(begin, rows_);
        }
        Value* corner = at(to, ir_.add(ir_.mul(c, i64(width)), i64(std::int64_t{v} * lanes_)));
        add_product(
            group, vectors, [&](int r) { return at(corner, i64(r * width)); }, begin, rows_, panel,
            width,
            [&](int r, Value* row) {
              return at(weights, ir_.add(ir_.add(ir_.mul(row, i64(line_)), c), i64(r)));
            });
      });
    });
  }

  // Of a product whose sums are few vectors wide.
  static constexpr int kMostRows = 12;

  std::int64_t head_width_ = 0;  // head_dim_ in whole vectors
  std::int64_t row_block_ = 0;
  std::int64_t padded_rows_ = 0;
  std::int64_t column_block_ = 0;
  std::int64_t line_ = 0;  // elements from a row of weights to the next
  bool gathers_in_place_ = false;
  // Scratch.
  Value* q_ = nullptr;
  Value* g_ = nullptr;
  Value* kt_ = nullptr;
  Value* vt_ = nullptr;
  Value* k_ = nullptr;
  Value* p_ = nullptr;
  Value* ds_ = nullptr;
  Value* dk_ = nullptr;
  Value* dv_ = nullptr;
  Value* dq_ = nullptr;
  Value* factors_ = nullptr;
  // Of the iteration.
  Value* q_length_ = nullptr;
  Value* is_whole_ = nullptr;  // whether one block has all columns
  Value* share_ = nullptr;
  Value* first_head_ = nullptr;
  Value* first_row_ = nullptr;
  Value* rows_ = nullptr;
};

}  // namespace

EmittedKernel emit_attention_gradient(KernelCode& code, const AttentionKernel& attention,
                                      const Values& arguments) {
  AttentionGradientEmitter emitter(code, attention);
  return {emitter.run(arguments), false};
}

}  // namespace inkle::codegen::cpu
