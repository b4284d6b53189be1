#include "schedule/expand_reduce.h"

#include <limits>

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

// The least or greatest value of the type; infinities for floats.
ValueId Reducer::extreme(bool greatest) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (abi::is_float(dtype_)) return b_.real(dtype_, greatest ? kInfinity : -kInfinity);
  if (dtype_ == DType::boolean) return b_.integer(dtype_, greatest ? 1 : 0);
  if (dtype_ == DType::u8) return b_.integer(dtype_, greatest ? 255 : 0);
  const auto bits = static_cast<int>(abi::size_of(dtype_) * 8);
  const std::int64_t least = std::numeric_limits<std::int64_t>::min() >> (64 - bits);
  return b_.integer(dtype_, greatest ? ~least : least);
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
      return {extreme(true)};
    case ReduceOp::max:
      return {extreme(false)};
    case ReduceOp::any:
      return {b_.integer(DType::boolean, 0)};
    case ReduceOp::all:
      return {b_.integer(DType::boolean, 1)};
    case ReduceOp::argmin:
    case ReduceOp::argmax:
      return {extreme(op_ == ReduceOp::argmin), b_.integer(position_, 0)};
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
  const ValueId better = b_.compute(opcode, DType::boolean, {b, a});
  if (!abi::is_float(dtype_)) return better;
  const auto test = [&](ValueId v) { return b_.compute(Opcode::is_nan, DType::boolean, {v}); };
  const ValueId first = test(b);
  const ValueId not_second = b_.compute(Opcode::bit_not, DType::boolean, {test(a)});
  const ValueId only = b_.compute(Opcode::bit_and, DType::boolean, {first, not_second});
  return b_.compute(Opcode::bit_or, DType::boolean, {better, only});
}

ValueId Reducer::combine(ValueId a, ValueId b) {
  switch (op_) {
    case ReduceOp::sum:
      return b_.compute(Opcode::add, dtype_, {a, b});
    case ReduceOp::prod:
      return b_.compute(Opcode::mul, dtype_, {a, b});
    case ReduceOp::min:
      return b_.compute(Opcode::min, dtype_, {b, a});
    case ReduceOp::max:
      return b_.compute(Opcode::max, dtype_, {b, a});
    case ReduceOp::any:
      return b_.compute(Opcode::bit_or, DType::boolean, {a, b});
    case ReduceOp::all:
      return b_.compute(Opcode::bit_and, DType::boolean, {a, b});
    default:
      break;
  }
  INKLE_CHECK(false, "no such simple reduction");
  return kernel::kNone;
}

Values Reducer::step(const Values& before, ValueId x, ValueId position) {
  if (!has_position()) return {combine(before[0], x)};
  const ValueId better = is_better(before[0], x);
  return {b_.compute(Opcode::select, dtype_, {better, x, before[0]}),
          b_.compute(Opcode::select, position_, {better, position, before[1]})};
}

Values Reducer::merge(const Values& a, const Values& b) {
  if (!has_position()) return {combine(a[0], b[0])};
  const ValueId better = is_better(a[0], b[0]);
  const ValueId worse = is_better(b[0], a[0]);
  const auto logic = [&](Opcode opcode, const Values& operands) {
    return b_.compute(opcode, DType::boolean, operands);
  };
  const ValueId tie = logic(Opcode::bit_not, {logic(Opcode::bit_or, {better, worse})});
  const ValueId earlier = logic(Opcode::less, {b[1], a[1]});
  const ValueId take = logic(Opcode::bit_or, {better, logic(Opcode::bit_and, {tie, earlier})});
  return {b_.compute(Opcode::select, dtype_, {take, b[0], a[0]}),
          b_.compute(Opcode::select, position_, {take, b[1], a[1]})};
}

}  // namespace inkle::schedule::expansion
