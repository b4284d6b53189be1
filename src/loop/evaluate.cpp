// What each arithmetic opcode computes, on one element.
#include <cmath>

#include "base/error.h"
#include "base/special_functions.h"
#include "loop/scalar.h"

namespace inkle::loop {
namespace {

template <class T>
T float_remainder(T a, T b) {
  T r = std::fmod(a, b);
  if (r != 0 && ((b < 0) != (r < 0))) r += b;
  return r;
}

// As ATen's div_floor_floating.
template <class T>
T float_floordiv(T a, T b) {
  if (b == 0) return a / b;
  const T r = std::fmod(a, b);
  T quotient = (a - r) / b;
  if (r != 0 && ((b < 0) != (r < 0))) quotient -= 1;
  if (quotient == 0) return std::copysign(T(0), a / b);
  T floored = std::floor(quotient);
  if (quotient - floored > T(0.5)) floored += 1;
  return floored;
}

// Arithmetic that the type itself defines; nullopt for everything else.
template <class T>
std::optional<T> arithmetic(Opcode opcode, T a, T b, T c) {
  switch (opcode) {
    case Opcode::add:
      return a + b;
    case Opcode::sub:
      return a - b;
    case Opcode::mul:
      return a * b;
    case Opcode::div:
      return a / b;
    case Opcode::floordiv:
      return float_floordiv(a, b);
    case Opcode::remainder:
      return float_remainder(a, b);
    case Opcode::fmod:
      return std::fmod(a, b);
    case Opcode::neg:
      return -a;
    case Opcode::abs:
      return std::abs(a);
    case Opcode::min:
      return std::isnan(a) ? a : (std::isnan(b) || b < a) ? b : a;
    case Opcode::max:
      return std::isnan(a) ? a : (std::isnan(b) || b > a) ? b : a;
    case Opcode::fma:
      return std::fma(a, b, c);
    case Opcode::floor:
      return std::floor(a);
    case Opcode::ceil:
      return std::ceil(a);
    case Opcode::trunc:
      return std::trunc(a);
    case Opcode::round_even:
      return std::nearbyint(a);
    case Opcode::sqrt:
      return std::sqrt(a);
    case Opcode::copysign:
      return std::copysign(a, b);
    case Opcode::nextafter:
      return std::nextafter(a, b);
    default:
      return std::nullopt;
  }
}

double function(Opcode opcode, double a, double b) {
  switch (opcode) {
    case Opcode::rsqrt:
      return 1 / std::sqrt(a);
    case Opcode::exp:
      return std::exp(a);
    case Opcode::exp2:
      return std::exp2(a);
    case Opcode::expm1:
      return std::expm1(a);
    case Opcode::log:
      return std::log(a);
    case Opcode::log2:
      return std::log2(a);
    case Opcode::log10:
      return std::log10(a);
    case Opcode::log1p:
      return std::log1p(a);
    case Opcode::sin:
      return std::sin(a);
    case Opcode::cos:
      return std::cos(a);
    case Opcode::tan:
      return std::tan(a);
    case Opcode::asin:
      return std::asin(a);
    case Opcode::acos:
      return std::acos(a);
    case Opcode::atan:
      return std::atan(a);
    case Opcode::sinh:
      return std::sinh(a);
    case Opcode::cosh:
      return std::cosh(a);
    case Opcode::tanh:
      return std::tanh(a);
    case Opcode::asinh:
      return std::asinh(a);
    case Opcode::acosh:
      return std::acosh(a);
    case Opcode::atanh:
      return std::atanh(a);
    case Opcode::erf:
      return std::erf(a);
    case Opcode::erfc:
      return std::erfc(a);
    case Opcode::erfinv:
      return erfinv(a);
    case Opcode::lgamma:
      return std::lgamma(a);
    case Opcode::digamma:
      return digamma(a);
    case Opcode::pow:
      return std::pow(a, b);
    case Opcode::atan2:
      return std::atan2(a, b);
    case Opcode::hypot:
      return std::hypot(a, b);
    default:
      break;
  }
  INKLE_CHECK(false, "{} is no function of floats", name_of(opcode));
}

template <class T>
bool compare(Opcode opcode, T a, T b) {
  switch (opcode) {
    case Opcode::equal:
      return a == b;
    case Opcode::not_equal:
      return a != b;
    case Opcode::less:
      return a < b;
    case Opcode::less_equal:
      return a <= b;
    case Opcode::greater:
      return a > b;
    case Opcode::greater_equal:
      return a >= b;
    default:
      break;
  }
  INKLE_CHECK(false, "{} is no comparison", name_of(opcode));
}

std::int64_t shift(Opcode opcode, DType dtype, std::int64_t a, std::int64_t count) {
  const auto width = abi::size_of(dtype) * 8;
  const bool beyond = count < 0 || count >= width;
  if (opcode == Opcode::shift_left) {
    return beyond ? 0 : static_cast<std::int64_t>(static_cast<std::uint64_t>(a) << count);
  }
  return a >> (beyond ? 63 : count);
}

// Quotients of b != 0; -1 is apart because of the smallest integer.
std::int64_t divide(Opcode opcode, std::int64_t a, std::int64_t b) {
  const bool quotient = opcode == Opcode::div || opcode == Opcode::floordiv;
  if (b == -1) {
    return quotient ? static_cast<std::int64_t>(0 - static_cast<std::uint64_t>(a)) : 0;
  }
  const std::int64_t q = a / b;
  const std::int64_t r = a % b;
  const bool adjust = r != 0 && ((r < 0) != (b < 0));
  switch (opcode) {
    case Opcode::div:
      return q;
    case Opcode::fmod:
      return r;
    case Opcode::floordiv:
      return adjust ? q - 1 : q;
    default:
      return adjust ? r + b : r;
  }
}

// nullopt on division by zero.
std::optional<std::int64_t> integer_result(Opcode opcode, DType dtype, std::int64_t a,
                                           std::int64_t b, std::int64_t c) {
  const auto ua = static_cast<std::uint64_t>(a);
  const auto ub = static_cast<std::uint64_t>(b);
  const auto wrapped = [](std::uint64_t v) { return static_cast<std::int64_t>(v); };
  switch (opcode) {
    case Opcode::add:
      return wrapped(ua + ub);
    case Opcode::sub:
      return wrapped(ua - ub);
    case Opcode::mul:
      return wrapped(ua * ub);
    case Opcode::fma:
      return wrapped(ua * ub + static_cast<std::uint64_t>(c));
    case Opcode::div:
    case Opcode::floordiv:
    case Opcode::remainder:
    case Opcode::fmod:
      if (b == 0) return std::nullopt;
      return divide(opcode, a, b);
    case Opcode::neg:
      return wrapped(0 - ua);
    case Opcode::abs:
      return a < 0 ? wrapped(0 - ua) : a;
    case Opcode::min:
      return std::min(a, b);
    case Opcode::max:
      return std::max(a, b);
    case Opcode::bit_and:
      return a & b;
    case Opcode::bit_or:
      return a | b;
    case Opcode::bit_xor:
      return a ^ b;
    case Opcode::bit_not:
      return dtype == DType::boolean ? (a == 0 ? 1 : 0) : ~a;
    case Opcode::shift_left:
    case Opcode::shift_right:
      return shift(opcode, dtype, a, b);
    case Opcode::floor:
    case Opcode::ceil:
    case Opcode::trunc:
    case Opcode::round_even:
      return a;
    default:
      break;
  }
  INKLE_CHECK(false, "{} has no meaning on {}", name_of(opcode), abi::name_of(dtype));
}

Scalar boolean(bool value) { return {.integer = value ? 1 : 0}; }

Scalar evaluate_test(Opcode opcode, DType dtype, Scalar a) {
  const bool real = abi::is_float(dtype);
  switch (opcode) {
    case Opcode::is_nan:
      return boolean(real && std::isnan(a.real));
    case Opcode::is_inf:
      return boolean(real && std::isinf(a.real));
    default:
      return boolean(real ? std::signbit(a.real) : a.integer < 0);
  }
}

}  // namespace

std::optional<Scalar> evaluate_exact(Opcode opcode, DType dtype, std::span<const Scalar> operands) {
  const Scalar a = operands[0];
  const Scalar b = operands.size() > 1 ? operands[1] : Scalar{};
  const Scalar c = operands.size() > 2 ? operands[2] : Scalar{};
  if (kind_of(opcode) == OpcodeKind::test) return evaluate_test(opcode, dtype, a);
  if (kind_of(opcode) == OpcodeKind::comparison) {
    return boolean(abi::is_float(dtype) ? compare(opcode, a.real, b.real)
                                        : compare(opcode, a.integer, b.integer));
  }
  if (!abi::is_float(dtype)) {
    const auto result = integer_result(opcode, dtype, a.integer, b.integer, c.integer);
    if (!result) return std::nullopt;
    return make_scalar(dtype, *result);
  }
  if (dtype == DType::f64) {
    const auto result = arithmetic(opcode, a.real, b.real, c.real);
    if (!result) return std::nullopt;
    return Scalar{.real = *result};
  }
  INKLE_CHECK(dtype == DType::f32, "{} on {}", name_of(opcode), abi::name_of(dtype));
  const auto result = arithmetic(opcode, static_cast<float>(a.real), static_cast<float>(b.real),
                                 static_cast<float>(c.real));
  if (!result) return std::nullopt;
  return Scalar{.real = static_cast<double>(*result)};
}

Scalar evaluate(Opcode opcode, DType dtype, std::span<const Scalar> operands) {
  if (const auto exact = evaluate_exact(opcode, dtype, operands)) return *exact;
  if (!abi::is_float(dtype)) user_error("integer division by zero");
  const double b = operands.size() > 1 ? operands[1].real : 0;
  return {.real = convert({.real = function(opcode, operands[0].real, b)}, DType::f64, dtype).real};
}

}  // namespace inkle::loop
