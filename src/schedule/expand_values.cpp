#include "schedule/expand_values.h"

#include <limits>
#include <utility>

#include "base/error.h"
#include "sym/symbols.h"

namespace inkle::schedule::expansion {

using loop::Opcode;

ValueId op(kernel::Builder& b, Opcode opcode, const Values& operands) {
  return b.compute(opcode, b.type_of(operands[0]).dtype, operands);
}

ValueId logic(kernel::Builder& b, Opcode opcode, const Values& operands) {
  return b.compute(opcode, DType::boolean, operands);
}

ValueId select(kernel::Builder& b, ValueId condition, ValueId x, ValueId otherwise) {
  return b.compute(Opcode::select, b.type_of(x).dtype, {condition, x, otherwise});
}

ValueId zero(kernel::Builder& b, DType dtype) {
  return abi::is_float(dtype) ? b.real(dtype, 0) : b.integer(dtype, 0);
}

ValueId extreme(kernel::Builder& b, DType dtype, bool greatest) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (abi::is_float(dtype)) return b.real(dtype, greatest ? kInfinity : -kInfinity);
  if (dtype == DType::boolean) return b.integer(dtype, greatest ? 1 : 0);
  if (dtype == DType::u8) return b.integer(dtype, greatest ? 255 : 0);
  const auto bits = static_cast<int>(abi::size_of(dtype) * 8);
  const std::int64_t least = std::numeric_limits<std::int64_t>::min() >> (64 - bits);
  return b.integer(dtype, greatest ? ~least : least);
}

ValueId compare(kernel::Builder& b, Opcode opcode, Expr x, Expr y) {
  return logic(b, opcode, {b.index(x), b.index(y)});
}

ValueId compare(kernel::Builder& b, Opcode opcode, Expr x, std::int64_t y) {
  return compare(b, opcode, x, b.context().constant(y));
}

ValueId less(kernel::Builder& b, Expr x, Expr y) { return compare(b, Opcode::less, x, y); }

void where(kernel::Builder& b, ValueId condition, const std::function<void()>& f) {
  b.branch(condition, [&] {
    f();
    return Values();
  });
}

Values where(kernel::Builder& b, ValueId condition, const Values& carried,
             const std::function<Values()>& f) {
  return b.branch(condition, f, [&] { return carried; });
}

void if_less(kernel::Builder& b, Expr x, Expr y, const std::function<void()>& f) {
  if (sym::less(x, y) == true) return f();
  where(b, less(b, x, y), f);
}

Values if_less(kernel::Builder& b, Expr x, Expr y, const Values& carried,
               const std::function<Values()>& f) {
  if (sym::less(x, y) == true) return f();
  return where(b, less(b, x, y), carried, f);
}

Values unrolled(kernel::Builder& b, std::int64_t count, const Values& carried,
                const kernel::Builder::LoopBody& f) {
  return b.loop(kernel::LoopKind::unroll, b.context().constant(count), carried, f);
}

void unrolled(kernel::Builder& b, std::int64_t count, const std::function<void(Expr)>& f) {
  (void)unrolled(b, count, {}, [&](Expr variable, const Values&) {
    f(variable);
    return Values();
  });
}

void in_vector(kernel::Builder& b, std::int64_t lanes, const std::function<void(Expr lane)>& f) {
  const auto width = static_cast<std::int32_t>(lanes);
  b.vector(width, width, [&](Expr lane) {
    f(lane);
    return Values();
  });
}

void in_lanes(kernel::Builder& b, std::int64_t lanes, const std::function<void(Expr lane)>& f) {
  if (lanes == 1) return f({});
  in_vector(b, lanes, f);
}

Expr bound(kernel::Builder& b, ValueId value, sym::Range range, std::int64_t divisor) {
  const Expr symbol = sym::fresh(b.context(), {.range = range, .divisor = divisor});
  b.operation(kernel::Op::bind, {value}, {kernel::scalar_type(DType::i64)},
              kernel::Symbolic{symbol, {}});
  return symbol;
}

namespace {

kernel::MemoryId named(kernel::Builder& b, const char* prefix, kernel::Space space, DType dtype,
                       const std::vector<std::int64_t>& shape) {
  kernel::Memory memory;
  memory.name = fmt::format("{}{}", prefix, b.kernel().memories.size());
  memory.space = space;
  memory.dtype = dtype;
  for (const std::int64_t extent : shape) memory.shape.push_back(b.context().constant(extent));
  if (space == kernel::Space::shared) memory.alignment = 16;
  return b.memory(std::move(memory));
}

}  // namespace

namespace {

constexpr std::int64_t kMarkBits = 32;

ValueId as(kernel::Builder& b, ValueId value, DType dtype) {
  if (b.type_of(value).dtype == dtype) return value;
  return b.compute(Opcode::bitcast, dtype, {value});
}

}  // namespace

ValueId marked(kernel::Builder& b, ValueId value) {
  const auto bits = [&](Opcode opcode, ValueId x, std::int64_t y) {
    return b.compute(opcode, DType::i64, {x, b.integer(DType::i64, y)});
  };
  const ValueId word = b.cast(as(b, value, DType::i32), DType::i64);
  return bits(Opcode::bit_or, bits(Opcode::shift_left, word, kMarkBits), 1);
}

ValueId unmarked(kernel::Builder& b, ValueId word, DType dtype) {
  const ValueId bits =
      b.compute(Opcode::shift_right, DType::i64, {word, b.integer(DType::i64, kMarkBits)});
  return as(b, b.cast(bits, DType::i32), dtype);
}

kernel::MemoryId registers(kernel::Builder& b, const char* prefix, DType dtype,
                           const std::vector<std::int64_t>& shape) {
  return named(b, prefix, kernel::Space::registers, dtype, shape);
}

kernel::MemoryId shared(kernel::Builder& b, const char* prefix, DType dtype,
                        const std::vector<std::int64_t>& shape) {
  return named(b, prefix, kernel::Space::shared, dtype, shape);
}

kernel::Access element_of(kernel::MemoryId memory, Expr number, Expr lane) {
  kernel::Access access;
  access.memory = memory;
  access.indices = {number, lane.is_null() ? number.context().constant(0) : lane};
  access.form = lane.is_null() ? kernel::Form::each : kernel::Form::wide;
  return access;
}

}  // namespace inkle::schedule::expansion
