#include "schedule/expand_states.h"

#include <limits>

#include "base/error.h"

namespace inkle::schedule::expansion {

using loop::Opcode;
using loop::ReduceOp;

GpuReducer::GpuReducer(kernel::Builder& b, ReduceOp op, DType accumulator, DType position)
    : b_(b),
      op_(op),
      dtype_(op == ReduceOp::any || op == ReduceOp::all ? DType::boolean : accumulator),
      position_(position) {}

bool GpuReducer::has_position() const { return op_ == ReduceOp::argmin || op_ == ReduceOp::argmax; }

std::size_t GpuReducer::states() const {
  if (op_ == ReduceOp::welford) return 3;
  return has_position() || op_ == ReduceOp::online_softmax ? 2 : 1;
}

ValueId GpuReducer::number(double value) {
  return abi::is_float(dtype_) ? b_.real(dtype_, value)
                               : b_.integer(dtype_, static_cast<std::int64_t>(value));
}

Values GpuReducer::identity() {
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
    case ReduceOp::argmax: {
      const std::int64_t none = position_ == DType::i32 ? std::numeric_limits<std::int32_t>::max()
                                                        : std::numeric_limits<std::int64_t>::max();
      return {extreme(b_, dtype_, op_ == ReduceOp::argmin), b_.integer(position_, none)};
    }
    case ReduceOp::welford:
      return {number(0), number(0), number(0)};
    case ReduceOp::online_softmax:
      return {extreme(b_, dtype_, false), number(0)};
  }
  return {};
}

ValueId GpuReducer::combine(ValueId a, ValueId b) {
  switch (op_) {
    case ReduceOp::sum:
      return op(b_, Opcode::add, {a, b});
    case ReduceOp::prod:
      return op(b_, Opcode::mul, {a, b});
    case ReduceOp::min:
      return op(b_, Opcode::min, {a, b});
    case ReduceOp::max:
      return op(b_, Opcode::max, {a, b});
    case ReduceOp::any:
      return logic(b_, Opcode::bit_or, {a, b});
    case ReduceOp::all:
      return logic(b_, Opcode::bit_and, {a, b});
    default:
      break;
  }
  INKLE_CHECK(false, "{} is no simple reduction", loop::name_of(op_));
  return kernel::kNone;
}

ValueId GpuReducer::beats(ValueId x, ValueId best) {
  const ValueId better =
      logic(b_, op_ == ReduceOp::argmax ? Opcode::greater : Opcode::less, {x, best});
  if (!abi::is_float(dtype_)) return better;
  const ValueId only = logic(b_, Opcode::bit_and,
                             {logic(b_, Opcode::is_nan, {x}),
                              logic(b_, Opcode::bit_not, {logic(b_, Opcode::is_nan, {best})})});
  return logic(b_, Opcode::bit_or, {better, only});
}

// The better of two; of equal ones the earlier.
Values GpuReducer::better(const Values& a, const Values& b) {
  const ValueId second = beats(b[0], a[0]);
  const ValueId tie =
      logic(b_, Opcode::bit_not, {logic(b_, Opcode::bit_or, {beats(a[0], b[0]), second})});
  const ValueId earlier = logic(b_, Opcode::less, {b[1], a[1]});
  const ValueId take = select(b_, tie, earlier, second);
  return {select(b_, take, b[0], a[0]), select(b_, take, b[1], a[1])};
}

Values GpuReducer::add_moment(const Values& before, ValueId x) {
  const ValueId count = op(b_, Opcode::add, {before[0], number(1)});
  const ValueId share = op(b_, Opcode::div, {number(1), count});
  const ValueId d = op(b_, Opcode::sub, {x, before[1]});
  const ValueId mean = op(b_, Opcode::add, {before[1], op(b_, Opcode::mul, {d, share})});
  const ValueId squares = op(b_, Opcode::mul, {d, op(b_, Opcode::sub, {x, mean})});
  return {count, mean, op(b_, Opcode::add, {before[2], squares})};
}

Values GpuReducer::merge_moments(const Values& a, const Values& b) {
  const ValueId count = op(b_, Opcode::add, {a[0], b[0]});
  const ValueId is_empty = logic(b_, Opcode::equal, {count, number(0)});
  const ValueId part = op(b_, Opcode::div, {b[0], count});
  const ValueId share = select(b_, is_empty, number(0), part);
  const ValueId d = op(b_, Opcode::sub, {b[1], a[1]});
  const ValueId mean = op(b_, Opcode::add, {a[1], op(b_, Opcode::mul, {d, share})});
  // The counts first: those of a part without elements are 0, and the square of d may overflow.
  const ValueId weight = op(b_, Opcode::mul, {a[0], share});
  const ValueId between = op(b_, Opcode::mul, {op(b_, Opcode::mul, {weight, d}), d});
  return {count, mean, op(b_, Opcode::add, {op(b_, Opcode::add, {a[2], b[2]}), between})};
}

ValueId GpuReducer::scale(ValueId from, ValueId to) {
  const ValueId same = logic(b_, Opcode::equal, {from, to});
  const ValueId is_least = logic(b_, Opcode::equal, {from, extreme(b_, dtype_, false)});
  return b_.branch(
      logic(b_, Opcode::bit_or, {same, is_least}), [&] { return Values{b_.cast(same, dtype_)}; },
      [&] {
        return Values{op(b_, Opcode::exp, {op(b_, Opcode::sub, {from, to})})};
      })[0];
}

Values GpuReducer::merge_exponentials(const Values& a, const Values& b) {
  const ValueId top = op(b_, Opcode::max, {a[0], b[0]});
  const ValueId first = op(b_, Opcode::mul, {a[1], scale(a[0], top)});
  const ValueId second = op(b_, Opcode::mul, {b[1], scale(b[0], top)});
  return {top, op(b_, Opcode::add, {first, second})};
}

Values GpuReducer::step(const Values& before, ValueId x, ValueId position) {
  if (has_position()) {  // of equals the earlier stays
    const ValueId take = beats(x, before[0]);
    return {select(b_, take, x, before[0]), select(b_, take, position, before[1])};
  }
  if (op_ == ReduceOp::welford) return add_moment(before, x);
  if (op_ == ReduceOp::online_softmax) return merge_exponentials(before, {x, number(1)});
  return {combine(before[0], x)};
}

Values GpuReducer::merge(const Values& a, const Values& b) {
  if (has_position()) return better(a, b);
  if (op_ == ReduceOp::welford) return merge_moments(a, b);
  if (op_ == ReduceOp::online_softmax) return merge_exponentials(a, b);
  return {combine(a[0], b[0])};
}

Values GpuReducer::results(const Values& states) {
  if (op_ == ReduceOp::welford) return {states[1], states[2]};
  if (op_ == ReduceOp::online_softmax) {
    // Where the maximum is infinite or NaN, the sum is NaN.
    const ValueId above = logic(b_, Opcode::greater, {states[0], extreme(b_, dtype_, false)});
    const ValueId below = logic(b_, Opcode::less, {states[0], extreme(b_, dtype_, true)});
    const ValueId finite = logic(b_, Opcode::bit_and, {above, below});
    const ValueId none = number(std::numeric_limits<double>::quiet_NaN());
    return {states[0], select(b_, finite, states[1], none)};
  }
  if (!has_position()) return {states[0]};
  // Where nothing was better than the least value there is, the first element is as good.
  const ValueId none = identity()[1];
  const ValueId place = b_.cast(states[1], DType::i64);
  return {
      select(b_, logic(b_, Opcode::equal, {states[1], none}), b_.integer(DType::i64, 0), place)};
}

}  // namespace inkle::schedule::expansion
