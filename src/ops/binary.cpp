// Elementwise arithmetic of two tensors (or a tensor and a number).
#include <limits>
#include <numbers>

#include "base/error.h"
#include "ops/elementwise.h"
#include "ops/table.h"

namespace inkle::ops {
namespace {

using graph::Argument;

constexpr std::string_view kAlphaSchema =
    "(self: operand, other: operand, alpha: scalar = 1) -> tensor";

// --- add and sub with alpha
// -------------------------------------------------------------------------

// alpha as ATen's kernels take it: in the compute type, and no float for integers.
bool alpha_is_one(const graph::Inference& args) {
  return args.size() < 3 || args.is_none(2) || args.real(2) == 1.0;
}

// x + alpha * y; the CPU kernels of ATen round once.
Val scaled_add(Lowering& l, BodyBuilder& b, Val x, Val y, bool subtract) {
  if (b.dtype(x) == DType::boolean) {
    if (subtract) l.args().fail("subtraction of bool is not defined");
    return b.logical_or(x, y);
  }
  if (alpha_is_one(l.args())) return subtract ? b.sub(x, y) : b.add(x, y);
  if (abi::is_float(b.dtype(x))) {
    const double alpha = l.args().real(2);
    return b.fma(y, constant_like(b, x, subtract ? -alpha : alpha), x);
  }
  const Val product = b.mul(y, constant_argument(l, b, x, 2));
  return subtract ? b.sub(x, product) : b.add(x, product);
}

// First and Second are the arguments that play x and y (rsub swaps them).
template <bool kSubtract, std::size_t kFirst, std::size_t kSecond>
void lower_scaled(Lowering& l) {
  const DType in = input_dtype(l, {0, 1}, In::own);
  const graph::Type& r = l.result_type();
  l.result(l.pointwise(r.sizes, r.dtype, [&](BodyBuilder& b, Indices i) {
    const Val x = operand(l, b, kFirst, i, in, OperandCast::exact);
    const Val y = operand(l, b, kSecond, i, in, OperandCast::exact);
    return scaled_add(l, b, x, y, kSubtract);
  }));
}

template <bool kSubtract, std::size_t kFirst, std::size_t kSecond>
void ref_scaled(Evaluation& e) {
  const DType in = evaluated_common(e, {0, 1}, In::own);
  const RefTensor x = e.operand(kFirst), y = e.operand(kSecond);
  RefTensor& r = e.result();
  const double alpha = kSubtract ? -e.real(2) : e.real(2);
  for_each_index(r.sizes, [&](std::span<const std::int64_t> i, std::size_t p) {
    const std::size_t px = broadcast_position(x, i), py = broadcast_position(y, i);
    if (abi::is_float(in)) {
      r.set(p, rounded_operand(x, px, in, OperandCast::exact) +
                   round_to(abi::compute_type(in), alpha) *
                       rounded_operand(y, py, in, OperandCast::exact));
    } else {
      const std::int64_t product = wrapping_mul(e.whole(2), y.integer(py));
      r.set(p, wrapping_add(x.integer(px), kSubtract ? wrapping_mul(-1, product) : product));
    }
  });
}

infer::Types infer_scaled(graph::Inference& args) {
  infer::Types types = infer::binary(args);
  if (!abi::is_float(types[0].dtype) && std::holds_alternative<double>(args.arg(2))) {
    args.fail("alpha must not be a float where the operands are integers");
  }
  return types;
}

constexpr OpDef scaled(std::string_view name, std::string_view aten, std::string_view doc,
                       void (*lower)(Lowering&), void (*reference)(Evaluation&),
                       SampleFunction sample, Trait traits = kPointwise) {
  return {.name = name,
          .schema = kAlphaSchema,
          .doc = doc,
          .traits = traits,
          .infer = infer_scaled,
          .lower = lower,
          .reference = reference,
          .aten = aten,
          .samples = sample};
}

// --- Products and quotients
// -------------------------------------------------------------------------

Val mul_value(BodyBuilder& b, Val x, Val y) {
  return b.dtype(x) == DType::boolean ? b.logical_and(x, y) : b.mul(x, y);
}

// Python's // and % of integers; a zero divisor gives 0 here, the samples avoid it.
std::int64_t floor_divide(std::int64_t a, std::int64_t b) {
  if (b == 0) return 0;
  if (b == -1) return wrapping_sub(0, a);
  return a / b - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0);
}
std::int64_t python_remainder(std::int64_t a, std::int64_t b) {
  if (b == 0 || b == -1) return 0;
  const std::int64_t r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
double python_remainder(double a, double b) {
  const double r = std::fmod(a, b);
  return r != 0 && (b < 0) != (r < 0) ? r + b : r;
}
// ATen's div_floor_floating.
double floor_divide(double a, double b) {
  if (b == 0) return a / b;
  const double mod = std::fmod(a, b);
  double quotient = (a - mod) / b;
  if (mod != 0 && (b < 0) != (mod < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double floor = std::floor(quotient);
  return quotient - floor > 0.5 ? floor + 1 : floor;
}

enum class Rounding : std::uint8_t { none, trunc, floor };
Rounding rounding_mode(const graph::Inference& args) {
  if (args.is_none(2)) return Rounding::none;
  const std::string_view mode = args.string(2);
  if (mode == "trunc") return Rounding::trunc;
  if (mode == "floor") return Rounding::floor;
  args.fail(fmt::format("rounding mode \"{}\" is none of trunc, floor", mode));
}

infer::Types infer_div_mode(graph::Inference& args) {
  return rounding_mode(args) == Rounding::none ? infer::binary_float(args) : infer::binary(args);
}

void lower_div_mode(Lowering& l) {
  const Rounding mode = rounding_mode(l.args());
  const DType in = input_dtype(l, {0, 1}, mode == Rounding::none ? In::as_float : In::own);
  const graph::Type& r = l.result_type();
  l.result(l.pointwise(r.sizes, r.dtype, [&](BodyBuilder& b, Indices i) {
    const Val x = operand(l, b, 0, i, in, OperandCast::exact);
    const Val y = operand(l, b, 1, i, in, OperandCast::exact);
    if (mode == Rounding::floor) return b.binary(Opcode::floordiv, x, y);
    const Val quotient = b.div(x, y);
    return mode == Rounding::trunc && abi::is_float(in) ? b.unary(Opcode::trunc, quotient)
                                                        : quotient;
  }));
}

void ref_div_mode(Evaluation& e) {
  const bool is_plain = e.is_none(2);
  if (is_plain) {
    ref_binary<[](double a, double b) { return a / b; }, In::as_float, OperandCast::exact>(e);
  } else if (e.string(2) == "trunc") {
    ref_binary_split<[](double a, double b) { return std::trunc(a / b); },
                     [](std::int64_t a, std::int64_t b) {
                       return b == 0 ? 0 : b == -1 ? wrapping_sub(0, a) : a / b;
                     },
                     OperandCast::exact>(e);
  } else {
    ref_binary_split<[](double a, double b) { return floor_divide(a, b); },
                     [](std::int64_t a, std::int64_t b) { return floor_divide(a, b); },
                     OperandCast::exact>(e);
  }
}

std::vector<graph::Sample> div_mode_samples() {
  using A = std::vector<Argument>;
  const std::vector<DType> dtypes = {DType::f32, DType::i32};
  return {
      {"floor",
       [](SampleBuilder& s) {
         return A{s.free_tensor({3, 4}, -9, 9), s.free_tensor({3, 4}, 1, 4), std::string("floor")};
       },
       dtypes},
      {"trunc",
       [](SampleBuilder& s) {
         return A{s.free_tensor({3, 4}, -9, 9), s.free_tensor({3, 4}, 1, 4), std::string("trunc")};
       },
       dtypes},
      {"none",
       [](SampleBuilder& s) {
         return A{s.free_tensor({3, 4}, -9, 9), s.free_tensor({3, 4}, 1, 4), graph::None{}};
       },
       dtypes}};
}

// --- Extremes
// ---------------------------------------------------------------------------------------

double nan_max(double a, double b) {
  return std::isnan(a) ? a : std::isnan(b) ? b : std::max(a, b);
}
double nan_min(double a, double b) {
  return std::isnan(a) ? a : std::isnan(b) ? b : std::min(a, b);
}

// fmax and fmin prefer a number to a NaN.
template <Opcode kOp>
Val number_extreme(BodyBuilder& b, Val x, Val y) {
  if (!abi::is_float(b.dtype(x))) return b.binary(kOp, x, y);
  const Val both = b.binary(kOp, x, y);
  return b.select(b.unary(Opcode::is_nan, x), y, b.select(b.unary(Opcode::is_nan, y), x, both));
}

// --- Logarithms
// -------------------------------------------------------------------------------------

// max + log(1 + exp(-|difference|)), equal infinities give themselves.
template <bool kBaseTwo>
Val logaddexp_value(BodyBuilder& b, Val x, Val y) {
  const Val infinite = b.logical_and(b.unary(Opcode::is_inf, x), b.binary(Opcode::equal, x, y));
  const Val m = b.max(x, y);
  const Val negative = b.neg(b.unary(Opcode::abs, b.sub(x, y)));
  Val tail = b.unary(Opcode::log1p, b.unary(kBaseTwo ? Opcode::exp2 : Opcode::exp, negative));
  if (kBaseTwo) tail = b.mul(tail, constant_like(b, x, std::numbers::log2e));
  return b.select(infinite, x, b.add(m, tail));
}

template <bool kBaseTwo>
double logaddexp_reference(double a, double b) {
  if (std::isinf(a) && a == b) return a;
  const double d = -std::abs(a - b);
  return nan_max(a, b) +
         (kBaseTwo ? std::log1p(std::exp2(d)) * std::numbers::log2e : std::log1p(std::exp(d)));
}

// x * log(y): NaN where y is, 0 where x is.
template <Opcode kLog>
Val xlogy_value(BodyBuilder& b, Val x, Val y) {
  const Val zero = constant_like(b, x, 0);
  const Val product = b.mul(x, b.unary(kLog, y));
  const Val value = b.select(b.binary(Opcode::equal, x, zero), zero, product);
  return b.select(b.unary(Opcode::is_nan, y), y, value);
}

template <auto kLog>
double xlogy_reference(double x, double y) {
  return std::isnan(y) ? y : x == 0 ? 0 : x * kLog(y);
}

Val heaviside_value(BodyBuilder& b, Val x, Val y) {
  const Val zero = constant_like(b, x, 0);
  const Val step = b.cast(b.less(zero, x), b.dtype(x));
  return b.select(b.binary(Opcode::equal, x, zero), y, step);
}

infer::Types infer_nextafter(graph::Inference& args) {
  infer::Types types = infer::binary(args);
  if (types[0].dtype != DType::f32 && types[0].dtype != DType::f64) {
    unsupported("nextafter of {}", abi::name_of(types[0].dtype));
  }
  return types;
}

void ref_nextafter(Evaluation& e) {
  const RefTensor &x = e.tensor(0), &y = e.tensor(1);
  for_each_index(e.result().sizes, [&](std::span<const std::int64_t> i, std::size_t p) {
    const double a = x.real(broadcast_position(x, i)), b = y.real(broadcast_position(y, i));
    e.result().set(
        p, e.result().dtype == DType::f64
               ? std::nextafter(a, b)
               : static_cast<double>(std::nextafter(static_cast<float>(a), static_cast<float>(b))));
  });
}

std::vector<graph::Sample> nextafter_samples() {
  return {{"equal",
           [](SampleBuilder& s) {
             return std::vector<Argument>{s.free_tensor({3, 5}), s.free_tensor({3, 5})};
           },
           {DType::f32, DType::f64}}};
}

template <Opcode kOp>
Val opcode_value(BodyBuilder& b, Val x, Val y) {
  return b.binary(kOp, x, y);
}

template <Opcode kOp, auto F>
constexpr OpDef float_row(std::string_view name, std::string_view aten, std::string_view doc,
                          SampleFunction sample = samples::binary_float) {
  return binary_row(name, aten, doc, infer::binary_float,
                    lower_binary<opcode_value<kOp>, In::as_float>, ref_binary<F, In::as_float>,
                    sample);
}

constexpr Trait kCommutative = Trait::pointwise | Trait::commutative;

constexpr OpDef kBinary[] = {
    scaled("add", "aten::add.Tensor aten::add.Scalar", "self + alpha * other; or of bool.",
           lower_scaled<false, 0, 1>, ref_scaled<false, 0, 1>, samples::binary),
    float_row<Opcode::atan2, [](double a, double b) { return std::atan2(a, b); }>(
        "atan2", "aten::atan2 aten::arctan2", "Angle of the point (other, self)."),
    float_row<Opcode::copysign, [](double a, double b) { return std::copysign(a, b); }>(
        "copysign", "aten::copysign.Tensor aten::copysign.Scalar",
        "Magnitude of self with the sign of other."),
    binary_row(
        "div",
        "aten::div.Tensor aten::div.Scalar aten::true_divide.Tensor aten::true_divide.Scalar",
        "True division; integers become floats.", infer::binary_float,
        lower_binary<opcode_value<Opcode::div>, In::as_float, OperandCast::exact>,
        ref_binary<[](double a, double b) { return a / b; }, In::as_float, OperandCast::exact>,
        samples::binary_nonzero),
    {.name = "div_mode",
     .schema = "(self: operand, other: operand, rounding_mode: string?) -> tensor",
     .doc = "Division, the quotient rounded to minus infinity (floor) or to zero (trunc).",
     .traits = kPointwise,
     .infer = infer_div_mode,
     .lower = lower_div_mode,
     .reference = ref_div_mode,
     .aten = "aten::div.Tensor_mode aten::div.Scalar_mode",
     .samples = div_mode_samples},
    binary_row("floor_divide", "aten::floor_divide aten::floor_divide.Scalar",
               "Quotient rounded to minus infinity.", infer::binary,
               lower_binary<opcode_value<Opcode::floordiv>, In::own, OperandCast::exact>,
               ref_binary_split<[](double a, double b) { return floor_divide(a, b); },
                                [](std::int64_t a, std::int64_t b) { return floor_divide(a, b); },
                                OperandCast::exact>,
               samples::binary_nonzero),
    binary_row("fmax", "aten::fmax", "The larger one, a number rather than a NaN.", infer::binary,
               lower_binary<number_extreme<Opcode::max>>,
               ref_binary_split<[](double a, double b) { return std::fmax(a, b); },
                                [](std::int64_t a, std::int64_t b) { return std::max(a, b); }>,
               samples::binary),
    binary_row("fmin", "aten::fmin", "The smaller one, a number rather than a NaN.", infer::binary,
               lower_binary<number_extreme<Opcode::min>>,
               ref_binary_split<[](double a, double b) { return std::fmin(a, b); },
                                [](std::int64_t a, std::int64_t b) { return std::min(a, b); }>,
               samples::binary),
    binary_row("fmod", "aten::fmod.Tensor aten::fmod.Scalar", "Remainder with the dividend's sign.",
               infer::binary, lower_binary<opcode_value<Opcode::fmod>>,
               ref_binary_split<[](double a, double b) { return std::fmod(a, b); },
                                [](std::int64_t a, std::int64_t b) {
                                  return b == 0 || b == -1 ? 0 : a % b;
                                }>,
               samples::binary_nonzero),
    binary_row("heaviside", "aten::heaviside", "0 below 0, 1 above, other at 0.", infer::binary,
               lower_binary<heaviside_value>,
               ref_binary<[](double a, double b) { return a == 0    ? b
                                                          : (a > 0) ? 1.0
                                                                    : 0.0; }>,
               samples::binary_float),
    float_row<Opcode::hypot, [](double a, double b) { return std::hypot(a, b); }>(
        "hypot", "aten::hypot", "Square root of the sum of squares, without overflow."),
    binary_row("logaddexp", "aten::logaddexp", "log(exp(self) + exp(other)).", infer::binary,
               lower_binary<logaddexp_value<false>>, ref_binary<logaddexp_reference<false>>,
               samples::binary_float),
    binary_row("logaddexp2", "aten::logaddexp2", "The same to base 2.", infer::binary,
               lower_binary<logaddexp_value<true>>, ref_binary<logaddexp_reference<true>>,
               samples::binary_float),
    binary_row(
        "maximum", "aten::maximum", "The larger one; NaN if either is.", infer::binary,
        lower_binary<opcode_value<Opcode::max>>,
        ref_binary_split<nan_max, [](std::int64_t a, std::int64_t b) { return std::max(a, b); }>,
        samples::binary, kCommutative),
    binary_row(
        "minimum", "aten::minimum", "The smaller one; NaN if either is.", infer::binary,
        lower_binary<opcode_value<Opcode::min>>,
        ref_binary_split<nan_min, [](std::int64_t a, std::int64_t b) { return std::min(a, b); }>,
        samples::binary, kCommutative),
    binary_row("mul", "aten::mul.Tensor aten::mul.Scalar", "Product; and of bool.", infer::binary,
               lower_binary<mul_value, In::own, OperandCast::exact>,
               ref_binary_split<[](double a, double b) { return a * b; }, wrapping_mul,
                                OperandCast::exact>,
               samples::binary, kCommutative),
    binary_row("nextafter", "aten::nextafter", "Next float after self towards other.",
               infer_nextafter, lower_binary<opcode_value<Opcode::nextafter>>, ref_nextafter,
               nextafter_samples),
    binary_row(
        "remainder", "aten::remainder.Tensor aten::remainder.Scalar aten::remainder.Scalar_Tensor",
        "Remainder with the divisor's sign.", infer::binary,
        lower_binary<opcode_value<Opcode::remainder>>,
        ref_binary_split<[](double a, double b) { return python_remainder(a, b); },
                         [](std::int64_t a, std::int64_t b) { return python_remainder(a, b); }>,
        samples::binary_nonzero),
    scaled("rsub", "aten::rsub.Tensor aten::rsub.Scalar", "other - alpha * self.",
           lower_scaled<true, 1, 0>, ref_scaled<true, 1, 0>, samples::binary),
    binary_row("special_xlog1py",
               "aten::special_xlog1py aten::special_xlog1py.other_scalar "
               "aten::special_xlog1py.self_scalar",
               "x * log(1 + y), 0 where x is 0.", infer::binary_float,
               lower_binary<xlogy_value<Opcode::log1p>, In::as_float>,
               ref_binary<xlogy_reference<[](double y) { return std::log1p(y); }>, In::as_float>,
               samples::binary_nonzero),
    scaled("sub", "aten::sub.Tensor aten::sub.Scalar", "self - alpha * other.",
           lower_scaled<true, 0, 1>, ref_scaled<true, 0, 1>, samples::binary),
    binary_row(
        "xlogy",
        "aten::xlogy.Tensor aten::xlogy.Scalar_Other aten::xlogy.Scalar_Self "
        "aten::special_xlogy aten::special_xlogy.other_scalar aten::special_xlogy.self_scalar",
        "x * log(y), 0 where x is 0.", infer::binary_float,
        lower_binary<xlogy_value<Opcode::log>, In::as_float>,
        ref_binary<xlogy_reference<[](double y) { return std::log(y); }>, In::as_float>,
        samples::binary_nonzero),
};

}  // namespace

std::span<const graph::OpDef> binary_ops() { return kBinary; }

}  // namespace inkle::ops
