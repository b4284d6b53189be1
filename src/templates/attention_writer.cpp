#include "templates/attention_writer.h"

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "loop/scalar.h"

namespace inkle::templates {

namespace {

constexpr std::int64_t kCacheLine = 64;

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
  d.value_pairs = round_up(d.value, std::int64_t{2} * config.lanes) / 2;
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
      w_(b_, config.lanes),
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

// --- Memory

Expr AttentionWriter::offset_of(const Operand& operand, Expr head, Expr row, Expr last) {
  const auto& v = problem_.variables;
  const std::pair<Expr, Expr> at[] = {{v[0], batch_}, {v[1], head}, {v[2], row}, {v[3], last}};
  return sym::substitute(operand.offset, at);
}

ValueId AttentionWriter::load_lanes(const Operand& operand, Expr head, Expr row, Expr first) {
  const kernel::Form form = operand.is_contiguous ? kernel::Form::wide
                            : operand.is_constant ? kernel::Form::splat
                                                  : kernel::Form::each;
  const ValueId v =
      b_.load(operand.memory, {offset_of(operand, head, row, first + w_.lane())}, form);
  return operand.dtype == DType::boolean ? v : b_.cast(v, DType::f32);
}

void AttentionWriter::store_lanes(const Operand& operand, Expr head, Expr row, Expr first,
                                  ValueId v) {
  b_.store(operand.memory, {offset_of(operand, head, row, first + w_.lane())},
           b_.cast(v, operand.dtype),
           operand.is_contiguous ? kernel::Form::wide : kernel::Form::each);
}

ValueId AttentionWriter::load_row(const Operand& operand, Expr head, Expr row, std::int64_t first,
                                  std::int64_t count) {
  const auto load = [&] { return load_lanes(operand, head, row, w_.number(first)); };
  if (first + lanes_ <= count) return load();
  return w_.where(w_.first_lanes(count - first), load, w_.f32(0));
}

void AttentionWriter::store_row(const Operand& operand, Expr head, Expr row, std::int64_t first,
                                std::int64_t count, ValueId v) {
  w_.in_row(first, count, [&] { store_lanes(operand, head, row, w_.number(first), v); });
}

// --- Blocks

void AttentionWriter::pack_transposed(const Operand& operand, std::int64_t features, MemoryId to,
                                      Expr first, Expr count) {
  const std::int64_t whole = features / lanes_ * lanes_;
  w_.loop(zero_, count, lanes_, [&](Expr c) {
    // Columns beyond the end repeat the last one.
    std::vector<Expr> rows;
    for (int i = 0; i < lanes_; ++i) rows.push_back(first + sym::min(c + i, count - 1));
    w_.loop(zero_, w_.number(whole), lanes_,
            [&](Expr d) { pack_squares(operand, rows, d, lanes_, to, c); });
    if (whole < features) {
      pack_squares(operand, rows, w_.number(whole), static_cast<int>(features - whole), to, c);
    }
  });
  pad_columns(to, features, count);
}

void AttentionWriter::pad_columns(MemoryId to, std::int64_t rows, Expr count) {
  const std::int64_t tile = std::int64_t{lanes_} * config_.vectors;
  const bool is_f32 = b_.kernel().memories[to].dtype == DType::f32;
  const ValueId nothing = is_f32 ? w_.f32(0) : b_.integer(DType::i32, 0);
  w_.loop(
      sym::ceildiv(count, lanes_) * lanes_, sym::ceildiv(count, tile) * tile, lanes_, [&](Expr c) {
        w_.loop(zero_, w_.number(rows), 1, [&](Expr d) { w_.store_vector(to, {d, c}, nothing); });
      });
}

ValueId AttentionWriter::load_pairs(const Operand& operand, Expr head, Expr row, std::int64_t first,
                                    std::int64_t count) {
  const auto load = [&](std::int64_t at) {
    return at < count ? load_row(operand, head, row, at, count) : w_.f32(0);
  };
  return w_.pair(load(first), load(first + lanes_));
}

void AttentionWriter::pack_transposed_pairs(const Operand& operand, std::int64_t features,
                                            MemoryId to, Expr first, Expr count) {
  w_.loop(zero_, count, lanes_, [&](Expr c) {
    for (std::int64_t d = 0; d < features; d += std::int64_t{2} * lanes_) {
      Values square;
      for (int i = 0; i < lanes_; ++i) {
        // Columns beyond the end repeat the last one.
        const Expr row = first + sym::min(c + i, count - 1);
        square.push_back(load_pairs(operand, kv_head_, row, d, features));
      }
      const kernel::TypeList types(square.size(), kernel::scalar_type(DType::i32));
      const Values transposed = b_.operation(kernel::Op::transpose, square, types, {});
      for (int i = 0; i < lanes_; ++i) {
        w_.store_vector(to, {w_.number(d / 2 + i), c}, transposed[static_cast<std::size_t>(i)]);
      }
    }
  });
  pad_columns(to, round_up(features, std::int64_t{2} * lanes_) / 2, count);
}

void AttentionWriter::pack_column_pairs(const Operand& operand, std::int64_t features, MemoryId to,
                                        Expr first, Expr count, bool is_whole) {
  const std::int64_t width = round_up(features, lanes_);
  const Expr blocks = sym::ceildiv(count, std::int64_t{2} * lanes_);
  w_.loop(zero_, blocks, 1, [&](Expr n) {
    w_.loop(zero_, w_.number(lanes_), 1, [&](Expr l) {
      const auto column = [&](int half) { return n * (2 * lanes_) + l + half * lanes_; };
      for (std::int64_t d = 0; d < width; d += lanes_) {
        const auto load = [&](int half) {
          const Expr row = first + sym::min(column(half), count - 1);
          const ValueId v = load_row(operand, kv_head_, row, d, features);
          if (is_whole) return v;
          const ValueId left = b_.index(count - column(half));
          return w_.select(w_.compare(Opcode::greater, left, w_.i64(0)), v, w_.f32(0));
        };
        w_.store_vector(to, {n * lanes_ + l, w_.number(d)}, w_.pair(load(0), load(1)));
      }
    });
  });
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
    square.push_back(w_.where(
        w_.first_lanes(count), [&] { return load(row); }, w_.f32(0)));
  }
  const kernel::TypeList types(square.size(), kernel::scalar_type(DType::f32));
  const Values transposed = b_.operation(kernel::Op::transpose, square, types, {});
  for (int i = 0; i < count; ++i) {
    w_.store_vector(to, {feature + i, column}, transposed[static_cast<std::size_t>(i)]);
  }
}

ValueId AttentionWriter::masked_score(const LaneWriter::Lazy& score, bool is_there, ValueId valid,
                                      Expr row, Expr column) {
  const ValueId none = w_.f32(-std::numeric_limits<double>::infinity());
  const ValueId s = is_there ? score() : kernel::kNone;
  if (!problem_.mask) return is_there ? w_.select(valid, s, none) : w_.where(valid, score, none);
  // One element for all columns is there whether they are or not.
  const ValueId m = mask_.is_constant ? load_lanes(mask_, head_, row, column) : kernel::kNone;
  const auto masked = [&] {
    const ValueId own = is_there ? s : score();
    const ValueId mask = mask_.is_constant ? m : load_lanes(mask_, head_, row, column);
    if (mask_.dtype != DType::boolean) return w_.compute(Opcode::add, {own, mask});
    return w_.select(mask, own, w_.f32(problem_.hidden));
  };
  return w_.where(valid, masked, none);
}

ValueId AttentionWriter::mask_lanes(ValueId valid, Expr row, Expr column) {
  return w_.where(
      valid, [&] { return load_lanes(mask_, head_, row, column); }, b_.integer(DType::boolean, 0));
}

// --- Dropout

void AttentionWriter::prepare_dropout() {
  if (!problem_.dropout) return;
  dropout_.emplace(b_, w_, lanes_, *problem_.dropout);
  if (problem_.dropout->p >= 1) return;
  dropout_->prepare(w_.load_scalar(seed_.memory, {offset_of(seed_, zero_, zero_, zero_)}));
}

void AttentionWriter::draw_factors(MemoryId to, Expr row, Expr first, Expr columns) {
  const Expr head = batch_ * problem_.heads + head_;
  dropout_->draw_factors(to, head * problem_.q_length + row, first, columns);
}

}  // namespace inkle::templates
