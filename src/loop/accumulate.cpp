// Reductions of the reference interpreter.
#include <array>
#include <cmath>
#include <limits>

#include "loop/interpreter.h"

namespace inkle::loop {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::int64_t lowest(DType dtype) {
  switch (dtype) {
    case DType::boolean:
    case DType::u8:
      return 0;
    case DType::i8:
      return std::numeric_limits<std::int8_t>::min();
    case DType::i16:
      return std::numeric_limits<std::int16_t>::min();
    case DType::i32:
      return std::numeric_limits<std::int32_t>::min();
    default:
      return std::numeric_limits<std::int64_t>::min();
  }
}

std::int64_t highest(DType dtype) {
  return dtype == DType::boolean ? 1 : dtype == DType::u8 ? 255 : -(lowest(dtype) + 1);
}

}  // namespace

Accumulator::Accumulator(ReduceOp op, DType dtype)
    : op_(op), dtype_(dtype), real_(abi::is_float(dtype)) {
  if (op == ReduceOp::prod) {
    total_ = 1;
    integer_ = 1;
  } else if (op == ReduceOp::min) {
    best_ = {.real = kInfinity, .integer = highest(dtype)};
  } else if (op == ReduceOp::max) {
    best_ = {.real = -kInfinity, .integer = lowest(dtype)};
  } else if (op == ReduceOp::all) {
    integer_ = 1;
  }
}

void Accumulator::add(Scalar x) {
  const auto bits = static_cast<std::uint64_t>(x.integer);
  switch (op_) {
    case ReduceOp::sum:
      total_ += x.real;
      integer_ += bits;
      break;
    case ReduceOp::prod:
      total_ *= x.real;
      integer_ *= bits;
      break;
    case ReduceOp::any:
      integer_ |= bits;
      break;
    case ReduceOp::all:
      integer_ &= bits;
      break;
    case ReduceOp::min:
    case ReduceOp::max: {
      const std::array operands = {best_, x};
      best_ = evaluate(op_ == ReduceOp::min ? Opcode::min : Opcode::max, dtype_, operands);
      break;
    }
    case ReduceOp::argmin:
    case ReduceOp::argmax:
      if (count_ == 0 || wins(x)) {
        best_ = x;
        position_ = count_;
      }
      break;
    case ReduceOp::welford:
    case ReduceOp::online_softmax:
      list_.push_back(x.real);
      break;
  }
  ++count_;
}

Scalar Accumulator::result(std::uint32_t number) const {
  switch (op_) {
    case ReduceOp::sum:
    case ReduceOp::prod:
      return real_ ? make_scalar(dtype_, static_cast<double>(total_))
                   : make_scalar(dtype_, static_cast<std::int64_t>(integer_));
    case ReduceOp::any:
    case ReduceOp::all:
      return {.integer = static_cast<std::int64_t>(integer_)};
    case ReduceOp::min:
    case ReduceOp::max:
      return best_;
    case ReduceOp::argmin:
    case ReduceOp::argmax:
      return {.integer = position_};
    case ReduceOp::welford:
      return welford(number);
    case ReduceOp::online_softmax:
      return softmax(number);
  }
  return {};
}

DType Accumulator::result_dtype() const {
  if (op_ == ReduceOp::argmin || op_ == ReduceOp::argmax) return DType::i64;
  return op_ == ReduceOp::any || op_ == ReduceOp::all ? DType::boolean : dtype_;
}

bool Accumulator::wins(Scalar x) const {
  const bool least = op_ == ReduceOp::argmin;
  if (!real_) return least ? x.integer < best_.integer : x.integer > best_.integer;
  if (std::isnan(best_.real)) return false;
  if (std::isnan(x.real)) return true;
  return least ? x.real < best_.real : x.real > best_.real;
}

Scalar Accumulator::welford(std::uint32_t number) const {
  long double sum = 0;
  for (const double x : list_) sum += x;
  const long double mean = list_.empty() ? 0 : sum / static_cast<long double>(list_.size());
  long double squares = 0;
  for (const double x : list_) squares += (x - mean) * (x - mean);
  return make_scalar(dtype_, static_cast<double>(number == 0 ? mean : squares));
}

Scalar Accumulator::softmax(std::uint32_t number) const {
  double maximum = -kInfinity;
  for (const double x : list_) maximum = std::isnan(x) || x > maximum ? x : maximum;
  long double sum = 0;
  for (const double x : list_) sum += std::exp(static_cast<long double>(x) - maximum);
  return make_scalar(dtype_, number == 0 ? maximum : static_cast<double>(sum));
}

}  // namespace inkle::loop
