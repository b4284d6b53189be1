// Elementwise functions of one tensor.
#include <limits>
#include <numbers>

#include "ops/elementwise.h"
#include "ops/table.h"

namespace inkle::ops {
namespace {

constexpr std::string_view kSchema = "(self: tensor) -> tensor";

// A float function that is one opcode: integers become f32.
template <Opcode kOp>
void lower_function(Lowering& l) {
  lower_unary<[](BodyBuilder& b, Val x) { return b.unary(kOp, x); }, In::as_float>(l);
}
template <auto F>
void ref_function(Evaluation& e) {
  ref_unary<F, In::as_float>(e);
}

template <Opcode kOp, auto F>
constexpr OpDef function(std::string_view name, std::string_view aten, std::string_view doc,
                         SampleFunction sample = samples::unary_float) {
  return {.name = name,
          .schema = kSchema,
          .doc = doc,
          .traits = kPointwise,
          .infer = infer::float_unary,
          .lower = lower_function<kOp>,
          .reference = ref_function<F>,
          .aten = aten,
          .samples = sample};
}

// Inverse of erf by Newton's method on a rough start.
double erfinv_reference(double x) {
  if (std::isnan(x) || std::abs(x) > 1) return std::numeric_limits<double>::quiet_NaN();
  if (std::abs(x) == 1) return std::copysign(std::numeric_limits<double>::infinity(), x);
  const double w = std::log1p(-x * x), a = 0.147, t = 2 / (std::numbers::pi * a) + w / 2;
  double y = std::copysign(std::sqrt(std::sqrt(t * t - w / a) - t), x);
  for (int i = 0; i < 4; ++i) {
    y -= (std::erf(y) - x) / (2 * std::numbers::inv_sqrtpi * std::exp(-y * y));
  }
  return y;
}

// Reflection below 0, recurrence up to 10, then the asymptotic series.
double digamma_reference(double x) {
  if (x == 0) return std::copysign(std::numeric_limits<double>::infinity(), -x);
  if (x < 0) {
    if (x == std::floor(x)) return std::numeric_limits<double>::quiet_NaN();
    return digamma_reference(1 - x) - std::numbers::pi / std::tan(std::numbers::pi * x);
  }
  double result = 0;
  for (; x < 10; x += 1) result -= 1 / x;
  const double r = 1 / (x * x);
  return result + std::log(x) - 0.5 / x -
         r * (1.0 / 12 - r * (1.0 / 120 - r * (1.0 / 252 - r * (1.0 / 240 - r / 132))));
}

constexpr OpDef kFunctions[] = {
    function<Opcode::acos, [](double x) { return std::acos(x); }>(
        "acos", "aten::acos", "Arc cosine.", samples::unary_unit),
    function<Opcode::acosh, [](double x) { return std::acosh(x); }>(
        "acosh", "aten::acosh", "Inverse hyperbolic cosine.", samples::unary_positive),
    function<Opcode::asin, [](double x) { return std::asin(x); }>("asin", "aten::asin", "Arc sine.",
                                                                  samples::unary_unit),
    function<Opcode::asinh, [](double x) { return std::asinh(x); }>("asinh", "aten::asinh",
                                                                    "Inverse hyperbolic sine."),
    function<Opcode::atan, [](double x) { return std::atan(x); }>("atan", "aten::atan",
                                                                  "Arc tangent."),
    function<Opcode::atanh, [](double x) { return std::atanh(x); }>(
        "atanh", "aten::atanh", "Inverse hyperbolic tangent.", samples::unary_unit),
    function<Opcode::cos, [](double x) { return std::cos(x); }>("cos", "aten::cos", "Cosine."),
    function<Opcode::cosh, [](double x) { return std::cosh(x); }>("cosh", "aten::cosh",
                                                                  "Hyperbolic cosine."),
    function<Opcode::digamma, digamma_reference>(
        "digamma", "aten::digamma aten::special_digamma aten::special_psi",
        "Derivative of the log gamma function.", samples::unary_positive),
    function<Opcode::erf, [](double x) { return std::erf(x); }>(
        "erf", "aten::erf aten::special_erf", "Gauss error function."),
    function<Opcode::erfc, [](double x) { return std::erfc(x); }>(
        "erfc", "aten::erfc aten::special_erfc", "Complement of the error function."),
    function<Opcode::erfinv, erfinv_reference>("erfinv", "aten::erfinv aten::special_erfinv",
                                               "Inverse of the error function.",
                                               samples::unary_unit),
    function<Opcode::exp, [](double x) { return std::exp(x); }>("exp", "aten::exp", "Exponential."),
    function<Opcode::exp2, [](double x) { return std::exp2(x); }>(
        "exp2", "aten::exp2 aten::special_exp2", "Two to the power of x."),
    function<Opcode::expm1, [](double x) { return std::expm1(x); }>(
        "expm1", "aten::expm1 aten::special_expm1", "exp(x) - 1, exact near 0."),
    function<Opcode::lgamma, [](double x) { return std::lgamma(x); }>(
        "lgamma", "aten::lgamma aten::special_gammaln", "Logarithm of the absolute gamma function.",
        samples::unary_positive),
    function<Opcode::log, [](double x) { return std::log(x); }>(
        "log", "aten::log", "Natural logarithm.", samples::unary_positive),
    function<Opcode::log10, [](double x) { return std::log10(x); }>(
        "log10", "aten::log10", "Logarithm to base 10.", samples::unary_positive),
    function<Opcode::log1p, [](double x) { return std::log1p(x); }>(
        "log1p", "aten::log1p aten::special_log1p", "log(1 + x), exact near 0.",
        samples::unary_unit),
    function<Opcode::log2, [](double x) { return std::log2(x); }>(
        "log2", "aten::log2", "Logarithm to base 2.", samples::unary_positive),
    function<Opcode::rsqrt, [](double x) { return 1 / std::sqrt(x); }>(
        "rsqrt", "aten::rsqrt", "One over the square root.", samples::unary_positive),
    function<Opcode::sin, [](double x) { return std::sin(x); }>("sin", "aten::sin", "Sine."),
    function<Opcode::sinh, [](double x) { return std::sinh(x); }>("sinh", "aten::sinh",
                                                                  "Hyperbolic sine."),
    function<Opcode::sqrt, [](double x) { return std::sqrt(x); }>(
        "sqrt", "aten::sqrt", "Square root.", samples::unary_positive),
    function<Opcode::tan, [](double x) { return std::tan(x); }>("tan", "aten::tan", "Tangent."),
    function<Opcode::tanh, [](double x) { return std::tanh(x); }>("tanh", "aten::tanh",
                                                                  "Hyperbolic tangent."),
};

}  // namespace

std::span<const graph::OpDef> unary_ops() { return kFunctions; }

}  // namespace inkle::ops
