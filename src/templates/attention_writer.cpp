#include "templates/attention_writer.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "loop/scalar.h"

namespace inkle::templates {

namespace {

constexpr std::int64_t kCacheLine = 64;
constexpr std::int64_t kLowWord = 0xffffffff;

}  // namespace

Expr stack_bytes(sym::Context& context, std::span<const Array> arrays) {
  Expr bytes = context.constant(0);
  for (const Array& a : arrays) {
    const Expr own = sym::product(context, a.shape) * 4;
    bytes = bytes + sym::ceildiv(own, kCacheLine) * kCacheLine;
  }
  return bytes;
}

Dimensions dimensions_of(const AttentionProblem& problem, const AttentionConfig& config) {
  Dimensions d{};
  d.head = problem.head_dim.constant().value_or(0);
  d.value = problem.value_dim.constant().value_or(0);
  INKLE_CHECK(d.head > 0 && d.value > 0, "attention of head sizes {} and {}", d.head, d.value);
  d.head_width = round_up(d.head, config.lanes);
  d.value_width = round_up(d.value, config.lanes);
  d.head_pairs = round_up(d.head, std::int64_t{2} * config.lanes) / 2;
  std::int64_t tile = std::int64_t{config.lanes} * config.vectors;
  if (problem.dropout) tile = round_up(tile, kDrawn);
  d.columns = std::max(config.kv_block, tile);
  if (const auto length = problem.kv_length.constant()) {
    d.columns = std::min(d.columns, std::max<std::int64_t>(*length, 1));
  }
  d.columns = round_up(d.columns, tile);
  return d;
}

AttentionWriter::AttentionWriter(const AttentionProblem& problem, const AttentionConfig& config,
                                 kernel::Kernel& made, sym::Context& context)
    : problem_(problem),
      config_(config),
      b_(made, context),
      size_(dimensions_of(problem, config)),
      lanes_(config.lanes),
      zero_(context.constant(0)),
      one_(context.constant(1)) {
  made.name = problem.name;
  made.sizes = problem.sizes;
  made.sources = problem.sources;
}

// --- Declarations

AttentionWriter::Operand AttentionWriter::parameter(const AttentionOperand& operand,
                                                    kernel::Role role) {
  kernel::Memory memory;
  memory.name = fmt::format("p{}", b_.kernel().memories.size());
  memory.dtype = operand.dtype;
  memory.role = role;
  memory.alignment = operand.alignment;
  memory.may_alias = operand.may_alias;
  const auto stride = sym::stride(operand.offset, problem_.variables[3]);
  return {b_.parameter(std::move(memory)), operand.offset, operand.dtype,
          stride && stride->is_constant(1), stride && stride->is_constant(0)};
}

void AttentionWriter::declare(std::span<const Array> arrays) {
  for (const Array& a : arrays) {
    kernel::Memory memory;
    memory.name = a.name;
    memory.dtype = a.dtype;
    memory.space = kernel::Space::stack;
    memory.shape = a.shape;
    memory.alignment = kCacheLine;
    b_.memory(std::move(memory));
  }
}

MemoryId AttentionWriter::array(std::string_view name) {
  const auto& memories = b_.kernel().memories;
  const auto found = std::ranges::find(memories, name, &kernel::Memory::name);
  return found == memories.end() ? kernel::kNone : static_cast<MemoryId>(found - memories.begin());
}

void AttentionWriter::in_lanes(const std::function<void()>& body) {
  b_.vector(lanes_, lanes_, [&](Expr lane) {
    lane_ = lane;
    lane_number_ = b_.index(lane, DType::i32);
    body();
    return Values();
  });
}

// --- Values

ValueId AttentionWriter::compute(Opcode opcode, const Values& operands) {
  return b_.compute(opcode, b_.type_of(operands[0]).dtype, operands);
}

ValueId AttentionWriter::compare(Opcode opcode, ValueId a, ValueId b) {
  return b_.compute(opcode, DType::boolean, {a, b});
}

ValueId AttentionWriter::select(ValueId condition, ValueId a, ValueId b) {
  return b_.compute(Opcode::select, b_.type_of(a).dtype, {condition, a, b});
}

ValueId AttentionWriter::exp_of_negative(ValueId x) {
  return b_.function(kernel::NamedFunction::exp_negative, {x});
}

ValueId AttentionWriter::pair(ValueId low, ValueId high) {
  constexpr std::int64_t kHigh = -65536;  // 0xffff0000
  const auto bits = [&](ValueId v) { return b_.compute(Opcode::bitcast, DType::i32, {v}); };
  const auto number = [&](std::int64_t n) { return b_.integer(DType::i32, n); };
  const ValueId moved = compute(Opcode::shift_right, {bits(low), number(16)});
  return compute(Opcode::bit_or, {compute(Opcode::bit_and, {moved, number(0xffff)}),
                                  compute(Opcode::bit_and, {bits(high), number(kHigh)})});
}

ValueId AttentionWriter::rounded_pair(ValueId low, ValueId high) {
  return b_.function(kernel::NamedFunction::pack_bf16, {low, high});
}

ValueId AttentionWriter::across(Opcode opcode, ValueId v) {
  kernel::Collective lanes;
  lanes.lanes = true;
  return b_.reduce(lanes, {v}, [&](const Values& a, const Values& b) {
    return Values{compute(opcode, {a[0], b[0]})};
  })[0];
}

// --- Memory

ValueId AttentionWriter::load_scalar(MemoryId memory, std::vector<Expr> indices) {
  return b_.load(memory, std::move(indices), kernel::Form::splat);
}

void AttentionWriter::store_scalar(MemoryId memory, std::vector<Expr> indices, ValueId v) {
  b_.store(memory, std::move(indices), v, kernel::Form::splat);
}

ValueId AttentionWriter::load_vector(MemoryId memory, std::vector<Expr> indices) {
  indices.back() = indices.back() + lane_;
  return b_.load(memory, std::move(indices), kernel::Form::wide);
}

void AttentionWriter::store_vector(MemoryId memory, std::vector<Expr> indices, ValueId v) {
  indices.back() = indices.back() + lane_;
  b_.store(memory, std::move(indices), v, kernel::Form::wide);
}

Expr AttentionWriter::offset_of(const Operand& operand, Expr head, Expr row, Expr last) {
  const auto& v = problem_.variables;
  const std::pair<Expr, Expr> at[] = {{v[0], batch_}, {v[1], head}, {v[2], row}, {v[3], last}};
  return sym::substitute(operand.offset, at);
}

ValueId AttentionWriter::load_lanes(const Operand& operand, Expr head, Expr row, Expr first) {
  const kernel::Form form = operand.is_contiguous ? kernel::Form::wide
                            : operand.is_constant ? kernel::Form::splat
                                                  : kernel::Form::each;
  const ValueId v = b_.load(operand.memory, {offset_of(operand, head, row, first + lane_)}, form);
  return operand.dtype == DType::boolean ? v : b_.cast(v, DType::f32);
}

void AttentionWriter::store_lanes(const Operand& operand, Expr head, Expr row, Expr first,
                                  ValueId v) {
  b_.store(operand.memory, {offset_of(operand, head, row, first + lane_)},
           b_.cast(v, operand.dtype),
           operand.is_contiguous ? kernel::Form::wide : kernel::Form::each);
}

ValueId AttentionWriter::first_lanes(std::int64_t count) {
  return compare(Opcode::less, lane_number_, b_.integer(DType::i32, count));
}

void AttentionWriter::in_row(std::int64_t first, std::int64_t count,
                             const std::function<void()>& body) {
  if (first + lanes_ <= count) return body();
  b_.branch(first_lanes(count - first), [&] {
    body();
    return Values();
  });
}

ValueId AttentionWriter::load_row(const Operand& operand, Expr head, Expr row, std::int64_t first,
                                  std::int64_t count) {
  const auto load = [&] { return load_lanes(operand, head, row, number(first)); };
  if (first + lanes_ <= count) return load();
  return where(first_lanes(count - first), load, f32(0));
}

void AttentionWriter::store_row(const Operand& operand, Expr head, Expr row, std::int64_t first,
                                std::int64_t count, ValueId v) {
  in_row(first, count, [&] { store_lanes(operand, head, row, number(first), v); });
}

// --- Control

void AttentionWriter::loop(Expr begin, Expr end, std::int64_t step,
                           const std::function<void(Expr)>& body) {
  loop(begin, end, step, Runs::perhaps, {}, [&](Expr i, const Values&) {
    body(i);
    return Values();
  });
}

Values AttentionWriter::loop(Expr begin, Expr end, std::int64_t step, Runs runs,
                             const Values& initial, const kernel::Builder::LoopBody& body) {
  kernel::Loop info;
  info.begin = begin;
  info.end = end;
  info.step = number(step);
  info.at_least_once = runs == Runs::surely;
  return b_.loop(std::move(info), initial, body);
}

// --- Blocks

void AttentionWriter::pack_transposed(const Operand& operand, std::int64_t features, MemoryId to,
                                      Expr first, Expr count) {
  const std::int64_t whole = features / lanes_ * lanes_;
  loop(zero_, count, lanes_, [&](Expr c) {
    // Columns beyond the end repeat the last one.
    std::vector<Expr> rows;
    for (int i = 0; i < lanes_; ++i) rows.push_back(first + sym::min(c + i, count - 1));
    loop(zero_, number(whole), lanes_,
         [&](Expr d) { pack_squares(operand, rows, d, lanes_, to, c); });
    if (whole < features) {
      pack_squares(operand, rows, number(whole), static_cast<int>(features - whole), to, c);
    }
  });
  pad_columns(to, features, count);
}

void AttentionWriter::pad_columns(MemoryId to, std::int64_t rows, Expr count) {
  const std::int64_t tile = std::int64_t{lanes_} * config_.vectors;
  const bool is_f32 = b_.kernel().memories[to].dtype == DType::f32;
  const ValueId nothing = is_f32 ? f32(0) : b_.integer(DType::i32, 0);
  loop(sym::ceildiv(count, lanes_) * lanes_, sym::ceildiv(count, tile) * tile, lanes_, [&](Expr c) {
    loop(zero_, number(rows), 1, [&](Expr d) { store_vector(to, {d, c}, nothing); });
  });
}

ValueId AttentionWriter::load_pairs(const Operand& operand, Expr head, Expr row, std::int64_t first,
                                    std::int64_t count) {
  const auto load = [&](std::int64_t at) {
    return at < count ? load_row(operand, head, row, at, count) : f32(0);
  };
  return pair(load(first), load(first + lanes_));
}

void AttentionWriter::pack_transposed_pairs(const Operand& operand, std::int64_t features,
                                            MemoryId to, Expr first, Expr count) {
  loop(zero_, count, lanes_, [&](Expr c) {
    for (std::int64_t d = 0; d < features; d += std::int64_t{2} * lanes_) {
      Values square;
      for (int i = 0; i < lanes_; ++i) {
        // Columns beyond the end repeat the last one.
        const Expr row = first + sym::min(c + i, count - 1);
        square.push_back(load_pairs(operand, kv_head_, row, d, features));
      }
      const std::vector<kernel::Type> types(square.size(), kernel::scalar_type(DType::i32));
      const Values transposed = b_.operation(kernel::Op::transpose, square, types, {});
      for (int i = 0; i < lanes_; ++i) {
        store_vector(to, {number(d / 2 + i), c}, transposed[static_cast<std::size_t>(i)]);
      }
    }
  });
  pad_columns(to, round_up(features, std::int64_t{2} * lanes_) / 2, count);
}

void AttentionWriter::pack_squares(const Operand& operand, const std::vector<Expr>& rows,
                                   Expr feature, int count, MemoryId to, Expr column) {
  const auto load = [&](Expr row) { return load_lanes(operand, kv_head_, row, feature); };
  Values square;
  for (const Expr row : rows) {
    if (count == lanes_) {
      square.push_back(load(row));
      continue;
    }
    square.push_back(where(
        first_lanes(count), [&] { return load(row); }, f32(0)));
  }
  const std::vector<kernel::Type> types(square.size(), kernel::scalar_type(DType::f32));
  const Values transposed = b_.operation(kernel::Op::transpose, square, types, {});
  for (int i = 0; i < count; ++i) {
    store_vector(to, {feature + i, column}, transposed[static_cast<std::size_t>(i)]);
  }
}

Values AttentionWriter::product(Block block, const Values& before, Expr begin, Expr end, Runs runs,
                                const Panel& panel, const Element& element) {
  return loop(begin, end, 1, runs, before, [&](Expr k, const Values& sums) {
    Values right;
    for (int v = 0; v < block.vectors; ++v) right.push_back(panel(v, k));
    Values next;
    for (int r = 0; r < block.rows; ++r) {
      const ValueId left = element(r, k);
      const bool pairs = b_.type_of(left).dtype == DType::i32;
      for (const ValueId vector : right) {
        const ValueId sum = sums[next.size()];
        next.push_back(pairs ? b_.function(kernel::NamedFunction::dot_bf16, {sum, left, vector})
                             : compute(Opcode::fma, {left, vector, sum}));
      }
    }
    return next;
  });
}

void AttentionWriter::for_each_sum(Block block, const Values& sums, const StoreSum& store) {
  for (int r = 0; r < block.rows; ++r) {
    for (int v = 0; v < block.vectors; ++v) {
      store(r, v, sums[static_cast<std::size_t>(r * block.vectors + v)]);
    }
  }
}

Values AttentionWriter::zeros(Block block) {
  return Values(static_cast<std::size_t>(block.rows * block.vectors), f32(0));
}

ValueId AttentionWriter::lanes_before(Expr limit, Expr c) {
  const ValueId left = b_.cast(b_.index(limit - c), DType::i32);
  return compare(Opcode::less, lane_number_, left);
}

ValueId AttentionWriter::masked_score(const Lazy& score, bool is_there, ValueId valid, Expr row,
                                      Expr column) {
  const ValueId none = f32(-std::numeric_limits<double>::infinity());
  const ValueId s = is_there ? score() : kernel::kNone;
  if (!problem_.mask) return is_there ? select(valid, s, none) : where(valid, score, none);
  // One element for all columns is there whether they are or not.
  const ValueId m = mask_.is_constant ? load_lanes(mask_, head_, row, column) : kernel::kNone;
  const auto masked = [&] {
    const ValueId own = is_there ? s : score();
    const ValueId mask = mask_.is_constant ? m : load_lanes(mask_, head_, row, column);
    if (mask_.dtype != DType::boolean) return compute(Opcode::add, {own, mask});
    return select(mask, own, f32(problem_.hidden));
  };
  return where(valid, masked, none);
}

ValueId AttentionWriter::where(ValueId valid, const Lazy& v, ValueId otherwise) {
  return b_.branch(
      valid, [&] { return Values{v()}; }, [&] { return Values{otherwise}; })[0];
}

ValueId AttentionWriter::mask_lanes(ValueId valid, Expr row, Expr column) {
  return where(
      valid, [&] { return load_lanes(mask_, head_, row, column); }, b_.integer(DType::boolean, 0));
}

// --- Dropout

void AttentionWriter::prepare_dropout() {
  if (!problem_.dropout || problem_.dropout->p >= 1) return;
  const ValueId seed = load_scalar(seed_.memory, {offset_of(seed_, zero_, zero_, zero_)});
  const ValueId low = i64(kLowWord);
  const ValueId high = compute(Opcode::shift_right, {seed, i64(32)});
  std::array<ValueId, 2> key = {compute(Opcode::bit_and, {seed, low}),
                                compute(Opcode::bit_and, {high, low})};
  const std::int64_t steps[2] = {0x9E3779B9, 0xBB67AE85};
  for (int round = 0; round < 10; ++round) {
    round_keys_.push_back(key);
    if (round == 9) break;
    for (std::size_t k = 0; k < 2; ++k) {
      key[k] = compute(Opcode::bit_and, {compute(Opcode::add, {key[k], i64(steps[k])}), low});
    }
  }
}

// One of the ten rounds of Philox-4x32: words of 32 bits in i64.
void AttentionWriter::philox_round(Words& c, const std::array<ValueId, 2>& key) {
  const ValueId low = i64(kLowWord);
  const auto upper = [&](ValueId v) {
    return compute(Opcode::bit_and, {compute(Opcode::shift_right, {v, i64(32)}), low});
  };
  const auto mixed = [&](ValueId product, ValueId word, ValueId with) {
    const ValueId x = compute(Opcode::bit_xor, {upper(product), word});
    return compute(Opcode::bit_xor, {x, with});
  };
  const ValueId p0 = compute(Opcode::mul, {c[0], i64(0xD2511F53)});
  const ValueId p1 = compute(Opcode::mul, {c[2], i64(0xCD9E8D57)});
  const Words next = {mixed(p1, c[1], key[0]), compute(Opcode::bit_and, {p1, low}),
                      mixed(p0, c[3], key[1]), compute(Opcode::bit_and, {p0, low})};
  c = next;
}

// Word w of the counters 16 b + l is for the columns 64 b + 16 w + l, 0 <= l < 16.
void AttentionWriter::draw_factors(MemoryId to, Expr row, Expr first, Expr columns) {
  constexpr int kApart = 16;
  const double p = problem_.dropout->p;
  if (p >= 1) {
    const Expr end = sym::ceildiv(columns, kDrawn) * kDrawn;
    loop(zero_, end, lanes_, [&](Expr c) { store_vector(to, {c}, f32(0)); });
    return;
  }
  INKLE_CHECK(lanes_ <= kApart, "vectors of {} lanes", lanes_);
  const ValueId low = i64(kLowWord);
  const ValueId counted =
      b_.index((batch_ * problem_.heads + head_) * problem_.q_length + row, DType::i64);
  const ValueId row_low = compute(Opcode::bit_and, {counted, low});
  const ValueId row_high =
      compute(Opcode::bit_and, {compute(Opcode::shift_right, {counted, i64(32)}), low});
  const ValueId stream = i64((problem_.dropout->number + 1) & kLowWord);
  const ValueId least = i64(loop::dropped_below(p));
  const ValueId kept = f32(loop::dropout_scale(p));
  loop(zero_, columns, kDrawn, [&](Expr c) {
    const Expr block = sym::floordiv(first + c, kDrawn) * kApart;
    for (int part = 0; part < kApart; part += lanes_) {
      const ValueId counter = compute(Opcode::add, {b_.index(block + part), b_.index(lane_)});
      Words w = {compute(Opcode::bit_and, {counter, low}), row_low, row_high, stream};
      for (const std::array<ValueId, 2>& key : round_keys_) philox_round(w, key);
      for (int n = 0; n < 4; ++n) {
        const ValueId is_kept =
            compare(Opcode::greater_equal, w[static_cast<std::size_t>(n)], least);
        store_vector(to, {c + (n * kApart + part)}, select(is_kept, kept, f32(0)));
      }
    }
  });
}

}  // namespace inkle::templates
