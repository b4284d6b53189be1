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
#include "codegen/cpu/body.h"
#include "codegen/cpu/kernel_code.h"
#include "codegen/cpu/math.h"
#include "codegen/cpu/math_parts.h"

namespace inkle::codegen::cpu {

using schedule::AttentionKernel;
using sym::Expr;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::int64_t kAlignment = 64;

std::int64_t round_up(std::int64_t v, std::int64_t to) { return (v + to - 1) / to * to; }

class AttentionEmitter {
 public:
  AttentionEmitter(KernelCode& code, const AttentionKernel& kernel)
      : code_(code), ir_(code.ir), kernel_(kernel), index_(code, code.symbols, no_lanes_) {
    const auto head_dim = kernel.head_dim.constant();
    const auto value_dim = kernel.value_dim.constant();
    if (!head_dim || !value_dim) unsupported("attention whose head size is not constant");
    if (kernel.dtype != DType::f32 && !abi::is_reduced_float(kernel.dtype)) {
      unsupported("attention of {}", abi::name_of(kernel.dtype));
    }
    const bool wide = code.target.vector_bytes == 64;
    lanes_ = code.target.vector_bytes / 4;
    vectors_ = wide ? 4 : 2;  // 6 x 4 of 32, or 6 x 2 of 16, registers accumulate
    head_dim_ = *head_dim;
    value_dim_ = *value_dim;
    value_width_ = round_up(value_dim_, lanes_);
    choose_blocks();
    vector_ = ir_.f32(lanes_);
    float_ = ir_.f32();
    read_layouts();
  }

  Expr run(const Values& arguments) {
    const std::int64_t bytes = place_scratch(arguments[2]);
    Value* q_length = index_.scalar(kernel_.q_length);
    Value* blocks = ir_.sdiv(ir_.add(q_length, i64(row_block_ - 1)), i64(row_block_));
    blocks = ir_.smax(blocks, i64(1));
    Value* heads = ir_.smax(index_.scalar(kernel_.heads), i64(1));
    Value* share =
        ir_.smax(ir_.sdiv(heads, ir_.smax(index_.scalar(kernel_.kv_heads), i64(1))), i64(1));
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
  struct Layout {
    Value* base = nullptr;            // the element with all variables 0
    std::array<Value*, 4> strides{};  // elements: batch, head, row, column or feature
    bool contiguous = false;          // the last one is 1
    bool constant = false;            // the last one is 0
    DType dtype = DType::f32;
  };

  Value* i64(std::int64_t v) { return ir_.i64(v); }

  void choose_blocks() {
    const auto q_length = kernel_.q_length.constant();
    const auto kv_length = kernel_.kv_length.constant();
    row_block_ = std::max<std::int64_t>(code_.schedule.q_block, 1);
    std::int64_t rows = row_block_;
    if (q_length) rows = std::clamp<std::int64_t>(*q_length, 1, rows);
    group_ = static_cast<int>(std::min<std::int64_t>(kRows, rows));
    padded_rows_ = round_up(rows, group_);
    const std::int64_t tile = std::int64_t{lanes_} * vectors_;
    column_block_ = std::max<std::int64_t>(code_.schedule.kv_block, tile);
    if (kv_length) column_block_ = std::min(column_block_, std::max<std::int64_t>(*kv_length, 1));
    column_block_ = round_up(column_block_, tile);
  }

  void read_layouts() {
    const std::size_t count = 4 + (kernel_.has_mask ? 1 : 0) + (kernel_.has_lse ? 1 : 0);
    INKLE_CHECK(kernel_.offsets.size() == count && code_.params.size() == count,
                "kernel {}: attention with {} offsets and {} parameters", code_.kernel.name,
                kernel_.offsets.size(), code_.params.size());
    sym::Context& context = kernel_.q_length.context();
    for (std::size_t p = 0; p < count; ++p) {
      Layout layout;
      layout.dtype = code_.kernel.params[p].dtype;
      Expr origin = kernel_.offsets[p];
      for (std::size_t d = 0; d < 4; ++d) {
        const Expr variable = kernel_.variables.at(d);
        const auto stride = sym::stride(kernel_.offsets[p], variable);
        if (!stride) unsupported("attention whose operand is not linear in its indices");
        layout.strides[d] = index_.scalar(*stride);
        if (d == 3) {
          layout.contiguous = stride->is_constant(1);
          layout.constant = stride->is_constant(0);
        }
        const std::pair<Expr, Expr> zero{variable, context.constant(0)};
        origin = sym::substitute(origin, {&zero, 1});
      }
      Type* element = memory_type(ir_, layout.dtype, 1);
      layout.base = ir_.address(element, code_.params[p], index_.scalar(origin));
      layouts_.push_back(layout);
    }
    pack_v_ = kernel_.dtype != DType::f32 || !layouts_[2].contiguous || value_width_ != value_dim_;
  }

  // Constant offsets: all sizes are.
  std::int64_t place_scratch(Value* base) {
    std::int64_t offset = schedule::kStatusBytes;
    const auto place = [&](std::int64_t floats) {
      Value* address = ir_.address(ir_.integer_type(8), base, i64(offset));
      offset += round_up(floats * 4, kAlignment);
      return address;
    };
    q_ = place(padded_rows_ * head_dim_);
    k_ = place(head_dim_ * column_block_);
    if (pack_v_) v_ = place(column_block_ * value_width_);
    s_ = place(group_ * column_block_);
    out_ = place(padded_rows_ * value_width_);
    maximum_ = place(padded_rows_);
    sum_ = place(padded_rows_);
    alpha_ = place(group_);
    return offset;
  }

  // Address of the element (batch, head, row, 0).
  Value* row_address(const Layout& layout, Value* head, Value* row) {
    Value* offset = ir_.mul(batch_, layout.strides[0]);
    offset = ir_.add(offset, ir_.mul(head, layout.strides[1]));
    offset = ir_.add(offset, ir_.mul(row, layout.strides[2]));
    return ir_.address(memory_type(ir_, layout.dtype, 1), layout.base, offset);
  }

  // Elements [first, first + lanes) along the last index, f32 (or bool lanes), those without mask
  // 0.
  Value* load_lanes(const Layout& layout, Value* row, Value* first, Value* mask) {
    Type* type = memory_type(ir_, layout.dtype, lanes_);
    Type* element = Ir::element_of(type);
    const auto alignment = static_cast<int>(abi::size_of(layout.dtype));
    Value* loaded = nullptr;
    if (layout.constant) {
      loaded = ir_.broadcast(ir_.load(element, row, alignment), lanes_);
    } else if (layout.contiguous) {
      Value* address = ir_.address(element, row, first);
      loaded = mask == nullptr ? ir_.load(type, address, alignment)
                               : ir_.masked_load(type, address, alignment, mask, Ir::zero(type));
    } else {
      Type* word = ir_.integer_type(64, lanes_);
      Value* offsets = ir_.mul(ir_.add(ir_.broadcast(first, lanes_), ir_.iota(word)),
                               ir_.broadcast(layout.strides[3], lanes_));
      if (mask == nullptr) mask = ir_.first_lanes(lanes_, lanes_);
      loaded = ir_.gather(type, row, offsets, alignment, mask, Ir::zero(type));
    }
    loaded = to_register(ir_, loaded, layout.dtype);
    return layout.dtype == DType::boolean ? loaded : cast(ir_, loaded, layout.dtype, DType::f32);
  }

  Value* at(Value* base, Value* offset) { return ir_.address(float_, base, offset); }
  Value* load_vector(Value* address) { return ir_.load(vector_, address, 4); }
  Value* load_float(Value* address) { return ir_.load(float_, address, 4); }

  void loop(Value* begin, Value* end, std::int64_t step, const std::function<void(Value*)>& body) {
    ir_.loop(begin, end, i64(step), {}, false, [&](Value* i, const Values&) {
      body(i);
      return Values();
    });
  }

  // The mask of the lanes of a vector at `first` of a row of `count` elements; null if all.
  Value* tail_mask(std::int64_t first, std::int64_t count) {
    return first + lanes_ <= count ? nullptr
                                   : ir_.first_lanes(lanes_, static_cast<int>(count - first));
  }

  void iteration() {
    Value* groups = ir_.sdiv(ir_.add(rows_, i64(group_ - 1)), i64(group_));
    prepare_rows(ir_.mul(groups, i64(group_)));
    Value* end = index_.scalar(kernel_.kv_length);
    if (kernel_.is_causal) end = ir_.smin(end, ir_.add(first_row_, rows_));
    loop(i64(0), end, column_block_, [&](Value* first) {
      Value* count = ir_.smin(ir_.sub(end, first), i64(column_block_));
      pack_keys(first, count);
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

  void store_tail(Value* v, Value* address, Value* mask) {
    if (mask == nullptr)
      ir_.store(v, address, 4);
    else
      ir_.masked_store(v, address, 4, mask);
  }

  // A square of lanes x lanes elements at a time; columns beyond the end repeat the last one.
  void pack_keys(Value* first, Value* count) {
    const Layout& layout = layouts_[1];
    Value* last = ir_.sub(ir_.add(first, count), i64(1));
    loop(i64(0), count, lanes_, [&](Value* c) {
      Values rows;
      for (int i = 0; i < lanes_; ++i) {
        Value* column = ir_.smin(ir_.add(ir_.add(first, c), i64(i)), last);
        rows.push_back(row_address(layout, kv_head_, column));
      }
      const std::int64_t whole = head_dim_ / lanes_ * lanes_;
      loop(i64(0), i64(whole), lanes_, [&](Value* d) { pack_square(layout, rows, d, c, lanes_); });
      if (whole < head_dim_) {
        pack_square(layout, rows, i64(whole), c, static_cast<int>(head_dim_ - whole));
      }
    });
  }

  void pack_square(const Layout& layout, const Values& rows, Value* d, Value* c, int features) {
    Value* mask = features == lanes_ ? nullptr : ir_.first_lanes(lanes_, features);
    Values square;
    for (Value* row : rows) square.push_back(load_lanes(layout, row, d, mask));
    transpose(square);
    for (int i = 0; i < features; ++i) {
      Value* to = ir_.add(ir_.mul(ir_.add(d, i64(i)), i64(column_block_)), c);
      ir_.store(square[static_cast<std::size_t>(i)], at(k_, to), 4);
    }
  }

  // Interleaving halves log2(lanes) times moves element (i, j) to (j, i).
  void transpose(Values& square) {
    const auto n = static_cast<std::size_t>(lanes_);
    std::vector<int> low;
    std::vector<int> high;
    for (int i = 0; i < lanes_ / 2; ++i) {
      low.insert(low.end(), {i, lanes_ + i});
      high.insert(high.end(), {lanes_ / 2 + i, lanes_ + lanes_ / 2 + i});
    }
    for (std::size_t done = 1; done < n; done *= 2) {
      Values next;
      for (std::size_t i = 0; i < n / 2; ++i) {
        next.push_back(ir_.shuffle(square[i], square[i + n / 2], low));
        next.push_back(ir_.shuffle(square[i], square[i + n / 2], high));
      }
      square = std::move(next);
    }
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
                                     return multiply(before, vectors_, panel, [&](int r) {
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

  // sums[r][v] + element(r) * panel[v]
  Values multiply(const Values& before, int vectors, Value* panel,
                  const std::function<Value*(int r)>& element) {
    Values right;
    for (int v = 0; v < vectors; ++v) {
      right.push_back(load_vector(at(panel, i64(std::int64_t{v} * lanes_))));
    }
    Values sums;
    for (int r = 0; r < group_; ++r) {
      Value* left = ir_.broadcast(load_float(element(r)), lanes_);
      for (int v = 0; v < vectors; ++v) {
        sums.push_back(ir_.fma(left, right[static_cast<std::size_t>(v)],
                               before[static_cast<std::size_t>(r * vectors + v)]));
      }
    }
    return sums;
  }

  // The score at column c of the block, minus infinity where the row does not look.
  Value* masked_score(Value* s, Value* limit, Value* c, Value* mask_row, Value* first) {
    Type* word = ir_.integer_type(32, lanes_);
    Value* left = ir_.truncate(ir_.sub(limit, c), ir_.integer_type(32));
    Value* valid = ir_.icmp(Compare::lt, ir_.iota(word), ir_.broadcast(left, lanes_));
    Value* none = Ir::real(vector_, -kInfinity);
    if (mask_row != nullptr) {
      Value* m = load_lanes(layouts_[4], mask_row, ir_.add(first, c), valid);
      s = kernel_.mask_dtype == DType::boolean ? ir_.select(m, s, none) : ir_.fadd(s, m);
    }
    return ir_.select(valid, s, none);
  }

  Value* across(Value* v, const std::function<Value*(Value*, Value*)>& combine) {
    while (Ir::lanes_of(v) > 1) v = combine(ir_.half(v, false), ir_.half(v, true));
    return v;
  }
  Value* maximum(Value* a, Value* b) {
    return emit_binary(ir_, loop::Opcode::max, DType::f32, a, b);
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
      if (kernel_.has_mask) mask_row = row_address(layouts_[4], head_, absolute);
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
      Value* alpha = exp_f32(ir_, ir_.fsub(old, centre));
      Value* centres = ir_.broadcast(centre, lanes_);
      Value* total = ir_.loop(i64(0), columns, i64(lanes_), {Ir::zero(vector_)}, true,
                              [&](Value* c, const Values& before) {
                                Value* s = load_vector(at(line, c));
                                Value* p = exp_f32(ir_, ir_.fsub(s, centres));
                                ir_.store(p, at(line, c), 4);
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
      return multiply(before, vectors, at(v, ir_.mul(c, stride)),
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
    Type* type = memory_type(ir_, layout.dtype, lanes_);
    const auto alignment = static_cast<int>(abi::size_of(layout.dtype));
    loop(i64(0), rows_, 1, [&](Value* r) {
      Value* row = ir_.add(first_row_, r);
      Value* to = row_address(layout, head_, row);
      Value* sum = load_float(at(sum_, r));
      Value* empty = ir_.fcmp(Compare::eq, sum, Ir::zero(float_));
      // 0 / 1 is the 0 that `safe` asks for, 0 / 0 the NaN otherwise.
      Value* divisor = kernel_.safe ? ir_.select(empty, Ir::real(float_, 1), sum) : sum;
      divisor = ir_.broadcast(divisor, lanes_);
      for (std::int64_t d = 0; d < value_dim_; d += lanes_) {
        Value* from = at(out_, ir_.add(ir_.mul(r, i64(value_width_)), i64(d)));
        Value* result = cast(ir_, ir_.fdiv(load_vector(from), divisor), DType::f32, layout.dtype);
        Value* mask = tail_mask(d, value_dim_);
        if (layout.contiguous) {
          Value* address = ir_.address(Ir::element_of(type), to, i64(d));
          if (mask == nullptr)
            ir_.store(result, address, alignment);
          else
            ir_.masked_store(result, address, alignment, mask);
        } else {
          Type* word = ir_.integer_type(64, lanes_);
          Value* offsets = ir_.mul(ir_.add(ir_.iota(word), Ir::integer(word, d)),
                                   ir_.broadcast(layout.strides[3], lanes_));
          if (mask == nullptr) mask = ir_.first_lanes(lanes_, lanes_);
          ir_.scatter(result, to, offsets, alignment, mask);
        }
      }
      if (kernel_.has_lse) {
        Value* lse = ir_.fadd(load_float(at(maximum_, r)), log_f32(ir_, sum));
        const Layout& place = layouts_.back();
        ir_.store(cast(ir_, lse, DType::f32, place.dtype), row_address(place, head_, row),
                  static_cast<int>(abi::size_of(place.dtype)));
      }
    });
  }

  static constexpr int kRows = 6;

  KernelCode& code_;
  Ir& ir_;
  const AttentionKernel& kernel_;
  LaneGroup no_lanes_;
  IndexEmitter index_;
  int lanes_ = 0;
  int vectors_ = 0;
  int group_ = 0;  // rows of a register block
  std::int64_t head_dim_ = 0;
  std::int64_t value_dim_ = 0;
  std::int64_t value_width_ = 0;  // value_dim_ in whole vectors
  std::int64_t row_block_ = 0;
  std::int64_t padded_rows_ = 0;
  std::int64_t column_block_ = 0;
  bool pack_v_ = false;
  Type* vector_ = nullptr;
  Type* float_ = nullptr;
  std::vector<Layout> layouts_;
  // Scratch.
  Value* q_ = nullptr;
  Value* k_ = nullptr;
  Value* v_ = nullptr;
  Value* s_ = nullptr;
  Value* out_ = nullptr;
  Value* maximum_ = nullptr;
  Value* sum_ = nullptr;
  Value* alpha_ = nullptr;
  // Of the iteration.
  Value* batch_ = nullptr;
  Value* head_ = nullptr;
  Value* kv_head_ = nullptr;
  Value* first_row_ = nullptr;
  Value* rows_ = nullptr;
};

}  // namespace

EmittedKernel emit_attention(KernelCode& code, const AttentionKernel& attention,
                             const Values& arguments) {
  AttentionEmitter emitter(code, attention);
  return {emitter.run(arguments), false};
}

}  // namespace inkle::codegen::cpu
