#include "base/special_functions.h"

#include <cmath>
#include <limits>

namespace inkle {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

// Newton's method on erf from a rational guess; the derivative is 2/sqrt(pi) exp(-x^2).
double erfinv(double y) {
  if (!(std::abs(y) <= 1)) return kNan;
  if (std::abs(y) == 1) return std::copysign(kInfinity, y);
  if (y == 0) return y;
  const double l = std::log1p(-y * y);
  const double t = 2 / (3.14159265358979323846 * 0.147) + l / 2;
  double x = std::copysign(std::sqrt(std::sqrt(t * t - l / 0.147) - t), y);
  const double tail = 1 - std::abs(y);
  for (int i = 0; i < 4; ++i) {
    // Near 1 the difference of erfc keeps the digits that erf loses.
    const double sign = std::signbit(y) ? -1 : 1;
    const double error =
        std::abs(y) > 0.5 ? sign * (tail - std::erfc(std::abs(x))) : std::erf(x) - y;
    const double slope = 1.12837916709551257390 * std::exp(-x * x);
    const double step = error / slope;
    x -= step / (1 + x * step);
  }
  return x;
}

double digamma(double x) {
  if (x == 0) return std::copysign(kInfinity, -x);
  if (std::isnan(x) || x == kInfinity) return x;
  if (x == -kInfinity) return kNan;
  double result = 0;
  if (x < 0) {
    const double fraction = x - std::trunc(x);
    if (fraction == 0) return kNan;
    constexpr double kPi = 3.14159265358979323846;
    result -= kPi / std::tan(kPi * fraction);
    x = 1 - x;
  }
  while (x < 16) {
    result -= 1 / x;
    x += 1;
  }
  const double z = 1 / (x * x);
  const double series =
      z * (1.0 / 12 - z * (1.0 / 120 - z * (1.0 / 252 - z * (1.0 / 240 - z * (1.0 / 132)))));
  return result + std::log(x) - 0.5 / x - series;
}

}  // namespace inkle
