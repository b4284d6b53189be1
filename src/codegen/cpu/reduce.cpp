// Accumulators of reductions.
#include "codegen/cpu/reduce.h"

#include <limits>

#include "base/error.h"
#include "codegen/cpu/operation.h"

namespace inkle::codegen::cpu {

using loop::Opcode;
using loop::ReduceOp;

Reducer::Reducer(Ir& ir, ReduceOp op, DType accumulator, int position_bits)
    : ir_(ir), op_(op), dtype_(accumulator), position_bits_(position_bits) {}

bool Reducer::has_position() const { return op_ == ReduceOp::argmin || op_ == ReduceOp::argmax; }

bool Reducer::wants_chunks() const {
  return (op_ == ReduceOp::sum || op_ == ReduceOp::prod) && abi::is_float(dtype_);
}

namespace {

// The least or greatest value of a type; infinities for floats.
Value* extreme(Ir& ir, DType dtype, int lanes, bool greatest) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (abi::is_float(dtype)) {
    return constant_of(ir, dtype, lanes, greatest ? kInfinity : -kInfinity, 0);
  }
  if (dtype == DType::boolean) return constant_of(ir, dtype, lanes, 0, greatest ? 1 : 0);
  if (dtype == DType::u8) return constant_of(ir, dtype, lanes, 0, greatest ? 255 : 0);
  const auto bits = static_cast<int>(abi::size_of(dtype) * 8);
  const std::int64_t least = std::numeric_limits<std::int64_t>::min() >> (64 - bits);
  return constant_of(ir, dtype, lanes, 0, greatest ? ~least : least);
}

}  // namespace

Values Reducer::identity(int lanes) {
  switch (op_) {
    case ReduceOp::sum:
      return {constant_of(ir_, dtype_, lanes, 0, 0)};
    case ReduceOp::prod:
      return {constant_of(ir_, dtype_, lanes, 1, 1)};
    case ReduceOp::min:
      return {extreme(ir_, dtype_, lanes, true)};
    case ReduceOp::max:
      return {extreme(ir_, dtype_, lanes, false)};
    case ReduceOp::any:
      return {constant_of(ir_, DType::boolean, lanes, 0, 0)};
    case ReduceOp::all:
      return {constant_of(ir_, DType::boolean, lanes, 0, 1)};
    case ReduceOp::argmin:
    case ReduceOp::argmax:
      return {extreme(ir_, dtype_, lanes, op_ == ReduceOp::argmin),
              Ir::zero(ir_.integer_type(position_bits_, lanes))};
    case ReduceOp::welford:
    case ReduceOp::online_softmax:
      break;
  }
  INKLE_CHECK(false, "no such simple reduction");
  return {};
}

Value* Reducer::is_better(Value* a, Value* b) {
  loop::Instruction compare;
  compare.opcode = op_ == ReduceOp::argmin ? Opcode::less : Opcode::greater;
  Value* const operands[] = {b, a};
  Faults none;
  Value* better = emit_operation(ir_, compare, dtype_, operands, nullptr, none);
  if (!abi::is_float(dtype_)) return better;
  return ir_.bit_or(better, ir_.bit_and(ir_.is_nan(b), ir_.bit_not(ir_.is_nan(a))));
}

Value* Reducer::combine(Value* a, Value* b) {
  switch (op_) {
    case ReduceOp::sum:
      return emit_binary(ir_, Opcode::add, dtype_, a, b);
    case ReduceOp::prod:
      return emit_binary(ir_, Opcode::mul, dtype_, a, b);
    case ReduceOp::min:
      return emit_binary(ir_, Opcode::min, dtype_, b, a);
    case ReduceOp::max:
      return emit_binary(ir_, Opcode::max, dtype_, b, a);
    case ReduceOp::any:
      return ir_.bit_or(a, b);
    case ReduceOp::all:
      return ir_.bit_and(a, b);
    default:
      break;
  }
  INKLE_CHECK(false, "no such simple reduction");
  return nullptr;
}

Values Reducer::step(const Values& before, Value* x, Value* position, Value* mask) {
  if (has_position()) {
    Value* better = is_better(before[0], x);
    if (mask != nullptr) better = ir_.bit_and(better, mask);
    return {ir_.select(better, x, before[0]), ir_.select(better, position, before[1])};
  }
  Value* after = combine(before[0], x);
  return {mask == nullptr ? after : ir_.select(mask, after, before[0])};
}

Values Reducer::merge(const Values& a, const Values& b) {
  if (!has_position()) return {combine(a[0], b[0])};
  Value* better = is_better(a[0], b[0]);
  Value* worse = is_better(b[0], a[0]);
  Value* tie = ir_.bit_not(ir_.bit_or(better, worse));
  Value* earlier = ir_.icmp(Compare::lt, b[1], a[1]);
  Value* take = ir_.bit_or(better, ir_.bit_and(tie, earlier));
  return {ir_.select(take, b[0], a[0]), ir_.select(take, b[1], a[1])};
}

Values Reducer::across_lanes(Values v) {
  while (Ir::lanes_of(v[0]) > 1) {
    Values low;
    Values high;
    for (Value* r : v) {
      low.push_back(ir_.half(r, false));
      high.push_back(ir_.half(r, true));
    }
    v = merge(low, high);
  }
  return v;
}

}  // namespace inkle::codegen::cpu
