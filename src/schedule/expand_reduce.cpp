#include "schedule/expand_reduce.h"

#include "base/error.h"

namespace inkle::schedule::expansion {

using loop::Opcode;
using loop::ReduceOp;

Reducer::Reducer(kernel::Builder& b, ReduceOp op, DType accumulator, DType position)
    : b_(b), op_(op), dtype_(accumulator), position_(position) {}

bool Reducer::has_position() const { return op_ == ReduceOp::argmin || op_ == ReduceOp::argmax; }

bool Reducer::wants_chunks() const {
  return (op_ == ReduceOp::sum || op_ == ReduceOp::prod) && abi::is_float(dtype_);
}

Values Reducer::identity() {
  const auto number = [&](int n) {
    return abi::is_float(dtype_) ? b_.real(dtype_, n) : b_.integer(dtype_, n);
  };
  switch (op_) {
    case ReduceOp::sum:
      return {number(0)};
    case ReduceOp::prod:
      return {number(1)};
    case ReduceOp::min:
      return {extreme(b_, dtype_, true)};
    case ReduceOp::max:
      return {extreme(b_, dtype_, false)};
    case ReduceOp::any:
      return {b_.integer(DType::boolean, 0)};
    case ReduceOp::all:
      return {b_.integer(DType::boolean, 1)};
    case ReduceOp::argmin:
    case ReduceOp::argmax:
      return {extreme(b_, dtype_, op_ == ReduceOp::argmin), b_.integer(position_, 0)};
    case ReduceOp::welford:
    case ReduceOp::online_softmax:
      break;
  }
  INKLE_CHECK(false, "no such simple reduction");
  return {};
}

// Whether b comes before a: a NaN before all else.
ValueId Reducer::is_better(ValueId a, ValueId b) {
  const Opcode opcode = op_ == ReduceOp::argmin ? Opcode::less : Opcode::greater;
  const ValueId better = logic(b_, opcode, {b, a});
  if (!abi::is_float(dtype_)) return better;
  const auto test = [&](ValueId v) { return logic(b_, Opcode::is_nan, {v}); };
  const ValueId first = test(b);
  const ValueId not_second = logic(b_, Opcode::bit_not, {test(a)});
  const ValueId only = logic(b_, Opcode::bit_and, {first, not_second});
  return logic(b_, Opcode::bit_or, {better, only});
}

ValueId Reducer::combine(ValueId a, ValueId b) {
  switch (op_) {
    case ReduceOp::sum:
      return op(b_, Opcode::add, {a, b});
    case ReduceOp::prod:
      return op(b_, Opcode::mul, {a, b});
    case ReduceOp::min:
      return op(b_, Opcode::min, {b, a});
    case ReduceOp::max:
      return op(b_, Opcode::max, {b, a});
    case ReduceOp::any:
      return logic(b_, Opcode::bit_or, {a, b});
    case ReduceOp::all:
      return logic(b_, Opcode::bit_and, {a, b});
    default:
      break;
  }
  INKLE_CHECK(false, "no such simple reduction");
  return kernel::kNone;
}

Values Reducer::step(const Values& before, ValueId x, ValueId position) {
  if (!has_position()) return {combine(before[0], x)};
  const ValueId better = is_better(before[0], x);
  return {select(b_, better, x, before[0]), select(b_, better, position, before[1])};
}

Values Reducer::merge(const Values& a, const Values& b) {
  if (!has_position()) return {combine(a[0], b[0])};
  const ValueId better = is_better(a[0], b[0]);
  const ValueId worse = is_better(b[0], a[0]);
  const ValueId tie = logic(b_, Opcode::bit_not, {logic(b_, Opcode::bit_or, {better, worse})});
  const ValueId earlier = logic(b_, Opcode::less, {b[1], a[1]});
  const ValueId take =
      logic(b_, Opcode::bit_or, {better, logic(b_, Opcode::bit_and, {tie, earlier})});
  return {select(b_, take, b[0], a[0]), select(b_, take, b[1], a[1])};
}

}  // namespace inkle::schedule::expansion
