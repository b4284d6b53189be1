#include "codegen/cpu/attention_tiles.h"

#include <algorithm>

#include "base/error.h"
#include "codegen/cpu/operation.h"
#include "loop/scalar.h"

namespace inkle::codegen::cpu {

using sym::Expr;

AttentionTiles::AttentionTiles(KernelCode& code, const schedule::AttentionKernel& kernel)
    : code_(code), ir_(code.ir), kernel_(kernel), sizes_(code.sizes) {
  const auto head_dim = kernel.head_dim.constant();
  const auto value_dim = kernel.value_dim.constant();
  if (!head_dim || !value_dim) unsupported("attention whose head size is not constant");
  INKLE_CHECK(*head_dim > 0 && *value_dim > 0, "attention of head sizes {} and {}", *head_dim,
              *value_dim);
  if (kernel.dtype != DType::f32 && !abi::is_reduced_float(kernel.dtype)) {
    unsupported("attention of {}", abi::name_of(kernel.dtype));
  }
  const bool wide = code.target.vector_bytes == 64;
  lanes_ = code.target.vector_bytes / 4;
  vectors_ = wide ? 4 : 2;  // 6 x 4 of 32, or 6 x 2 of 16, registers accumulate
  head_dim_ = *head_dim;
  value_dim_ = *value_dim;
  value_width_ = round_up(value_dim_, lanes_);
  vector_ = ir_.f32(lanes_);
  float_ = ir_.f32();
}

void AttentionTiles::read_layouts() {
  const std::size_t count = kernel_.offsets.size();
  INKLE_CHECK(code_.params.size() == count,
              "kernel {}: attention with {} offsets and {} parameters", code_.kernel.name, count,
              code_.params.size());
  sym::Context& context = kernel_.q_length.context();
  for (std::size_t p = 0; p < count; ++p) {
    Layout layout;
    layout.dtype = code_.kernel.params[p].dtype;
    Expr origin = kernel_.offsets[p];
    for (std::size_t d = 0; d < 4; ++d) {
      const Expr variable = kernel_.variables.at(d);
      const auto stride = sym::stride(kernel_.offsets[p], variable);
      if (!stride) unsupported("attention whose operand is not linear in its indices");
      layout.strides[d] = sizes_(*stride);
      if (d == 3) {
        layout.contiguous = stride->is_constant(1);
        layout.constant = stride->is_constant(0);
      }
      const std::pair<Expr, Expr> zero{variable, context.constant(0)};
      origin = sym::substitute(origin, {&zero, 1});
    }
    Type* element = memory_type(ir_, layout.dtype, 1);
    layout.base = ir_.address(element, code_.params[p], sizes_(origin));
    layouts_.push_back(layout);
  }
}

std::int64_t AttentionTiles::column_block() const {
  const auto kv_length = kernel_.kv_length.constant();
  std::int64_t tile = std::int64_t{lanes_} * vectors_;
  if (kernel_.dropout) tile = round_up(tile, kDrawn);
  std::int64_t columns = std::max<std::int64_t>(code_.schedule.kv_block, tile);
  if (kv_length) columns = std::min(columns, std::max<std::int64_t>(*kv_length, 1));
  return round_up(columns, tile);
}

void AttentionTiles::loop(Value* begin, Value* end, std::int64_t step,
                          const std::function<void(Value*)>& body) {
  ir_.loop(begin, end, i64(step), {}, false, [&](Value* i, const Values&) {
    body(i);
    return Values();
  });
}

Value* AttentionTiles::place(Value* base, std::int64_t& offset, std::int64_t floats) {
  constexpr std::int64_t kAlignment = 64;
  Value* address = ir_.address(ir_.integer_type(8), base, i64(offset));
  offset += round_up(floats * 4, kAlignment);
  return address;
}

Value* AttentionTiles::row_address(const Layout& layout, Value* head, Value* row) {
  Value* offset = ir_.mul(batch_, layout.strides[0]);
  offset = ir_.add(offset, ir_.mul(head, layout.strides[1]));
  offset = ir_.add(offset, ir_.mul(row, layout.strides[2]));
  return ir_.address(memory_type(ir_, layout.dtype, 1), layout.base, offset);
}

Value* AttentionTiles::load_lanes(const Layout& layout, Value* row, Value* first, Value* mask) {
  Type* type = memory_type(ir_, layout.dtype, lanes_);
  Type* element = Ir::element_of(type);
  const auto alignment = static_cast<int>(abi::size_of(layout.dtype));
  Value* loaded = nullptr;
  if (layout.constant) {
    loaded = ir_.broadcast(ir_.load(element, row, alignment), lanes_);
    if (mask != nullptr) loaded = ir_.select(mask, loaded, Ir::zero(type));
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

void AttentionTiles::store_lanes(const Layout& layout, Value* row, std::int64_t first, Value* v,
                                 Value* mask) {
  Type* type = memory_type(ir_, layout.dtype, lanes_);
  const auto alignment = static_cast<int>(abi::size_of(layout.dtype));
  Value* result = cast(ir_, v, DType::f32, layout.dtype);
  if (layout.contiguous) {
    Value* address = ir_.address(Ir::element_of(type), row, i64(first));
    if (mask == nullptr)
      ir_.store(result, address, alignment);
    else
      ir_.masked_store(result, address, alignment, mask);
    return;
  }
  Type* word = ir_.integer_type(64, lanes_);
  Value* offsets = ir_.mul(ir_.add(ir_.iota(word), Ir::integer(word, first)),
                           ir_.broadcast(layout.strides[3], lanes_));
  if (mask == nullptr) mask = ir_.first_lanes(lanes_, lanes_);
  ir_.scatter(result, row, offsets, alignment, mask);
}

Value* AttentionTiles::tail_mask(std::int64_t first, std::int64_t count) {
  return first + lanes_ <= count ? nullptr
                                 : ir_.first_lanes(lanes_, static_cast<int>(count - first));
}

void AttentionTiles::store_tail(Value* v, Value* address, Value* mask) {
  if (mask == nullptr)
    ir_.store(v, address, 4);
  else
    ir_.masked_store(v, address, 4, mask);
}

void AttentionTiles::pack_transposed(const Layout& layout, std::int64_t features, Value* to,
                                     std::int64_t columns, Value* first, Value* count) {
  Value* last = ir_.sub(ir_.add(first, count), i64(1));
  loop(i64(0), count, lanes_, [&](Value* c) {
    Values rows;
    for (int i = 0; i < lanes_; ++i) {
      Value* column = ir_.smin(ir_.add(ir_.add(first, c), i64(i)), last);
      rows.push_back(row_address(layout, kv_head_, column));
    }
    const std::int64_t whole = features / lanes_ * lanes_;
    loop(i64(0), i64(whole), lanes_,
         [&](Value* d) { pack_square(layout, rows, d, c, lanes_, to, columns); });
    if (whole < features) {
      pack_square(layout, rows, i64(whole), c, static_cast<int>(features - whole), to, columns);
    }
  });
}

void AttentionTiles::pack_square(const Layout& layout, const Values& rows, Value* d, Value* c,
                                 int features, Value* to, std::int64_t columns) {
  Value* mask = features == lanes_ ? nullptr : ir_.first_lanes(lanes_, features);
  Values square;
  for (Value* row : rows) square.push_back(load_lanes(layout, row, d, mask));
  transpose(square);
  for (int i = 0; i < features; ++i) {
    Value* place = ir_.add(ir_.mul(ir_.add(d, i64(i)), i64(columns)), c);
    ir_.store(square[static_cast<std::size_t>(i)], at(to, place), 4);
  }
}

// Interleaving halves log2(lanes) times moves element (i, j) to (j, i).
void AttentionTiles::transpose(Values& square) {
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

Values AttentionTiles::multiply(const Values& before, int rows, int vectors, Value* panel,
                                const std::function<Value*(int r)>& element) {
  Values right;
  for (int v = 0; v < vectors; ++v) {
    right.push_back(load_vector(at(panel, i64(std::int64_t{v} * lanes_))));
  }
  Values sums;
  for (int r = 0; r < rows; ++r) {
    Value* left = ir_.broadcast(load_float(element(r)), lanes_);
    for (int v = 0; v < vectors; ++v) {
      sums.push_back(ir_.fma(left, right[static_cast<std::size_t>(v)],
                             before[static_cast<std::size_t>(r * vectors + v)]));
    }
  }
  return sums;
}

Value* AttentionTiles::across(Value* v, const std::function<Value*(Value*, Value*)>& combine) {
  while (Ir::lanes_of(v) > 1) v = combine(ir_.half(v, false), ir_.half(v, true));
  return v;
}

Value* AttentionTiles::maximum(Value* a, Value* b) {
  return emit_binary(ir_, loop::Opcode::max, DType::f32, a, b);
}

Value* AttentionTiles::lanes_before(Value* limit, Value* c) {
  Type* word = ir_.integer_type(32, lanes_);
  Value* left = ir_.truncate(ir_.sub(limit, c), ir_.integer_type(32));
  return ir_.icmp(Compare::lt, ir_.iota(word), ir_.broadcast(left, lanes_));
}

void AttentionTiles::prepare_dropout() {
  if (!kernel_.dropout || kernel_.dropout->p >= 1) return;
  Type* word = ir_.integer_type(64);
  Value* seed = ir_.load(word, layouts_[kernel_.seed_at()].base, 8);
  Value* mask = Ir::integer(word, 0xffffffff);
  Value* keys[2] = {ir_.bit_and(seed, mask), ir_.lshr(seed, 32)};
  const std::int64_t steps[2] = {0x9E3779B9, 0xBB67AE85};
  for (int round = 0; round < 10; ++round) {
    std::array<Value*, 2> wide{};
    for (std::size_t k = 0; k < 2; ++k) {
      wide[k] = ir_.broadcast(keys[k], lanes_);
      keys[k] = ir_.bit_and(ir_.add(keys[k], Ir::integer(word, steps[k])), mask);
    }
    round_keys_.push_back(wide);
  }
}

// Word w of the counters 16 b + l is for the columns 64 b + 16 w + l, 0 <= l < 16.
void AttentionTiles::draw_factors(Value* to, Value* absolute, Value* first, Value* columns) {
  constexpr int kApart = 16;
  const double p = kernel_.dropout->p;
  if (p >= 1) {
    loop(i64(0), columns, lanes_, [&](Value* c) { ir_.store(Ir::zero(vector_), at(to, c), 4); });
    return;
  }
  INKLE_CHECK(lanes_ <= kApart, "vectors of {} lanes", lanes_);
  Type* word = ir_.integer_type(64, lanes_);
  Value* mask = Ir::integer(word, 0xffffffff);
  Value* row = ir_.add(ir_.mul(batch_, sizes_(kernel_.heads)), head_);
  row = ir_.add(ir_.mul(row, sizes_(kernel_.q_length)), absolute);
  Value* rows[2] = {ir_.broadcast(ir_.bit_and(row, i64(0xffffffff)), lanes_),
                    ir_.broadcast(ir_.lshr(row, 32), lanes_)};
  const std::int64_t number = (kernel_.dropout->number + 1) & 0xffffffff;
  Value* least = Ir::integer(word, loop::dropped_below(p));
  Value* kept = Ir::real(vector_, loop::dropout_scale(p));
  loop(i64(0), columns, kDrawn, [&](Value* c) {
    Value* block = ir_.mul(ir_.udiv(ir_.add(first, c), i64(kDrawn)), i64(kApart));
    for (int part = 0; part < kApart; part += lanes_) {
      Value* counter = ir_.add(ir_.broadcast(ir_.add(block, i64(part)), lanes_), ir_.iota(word));
      Value* w[4] = {ir_.bit_and(counter, mask), rows[0], rows[1], Ir::integer(word, number)};
      for (const std::array<Value*, 2>& key : round_keys_) philox_round(ir_, w, key);
      for (int n = 0; n < 4; ++n) {
        Value* is_kept = ir_.icmp(Compare::uge, w[n], least);
        Value* place = at(to, ir_.add(c, i64(n * kApart + part)));
        ir_.store(ir_.select(is_kept, kept, Ir::zero(vector_)), place, 4);
      }
    }
  });
}

}  // namespace inkle::codegen::cpu
