// Rounding, signs, predicates and other elementwise arithmetic of one tensor.
#include <bit>
#include <limits>
#include <numbers>

#include "ops/elementwise.h"
#include "ops/table.h"

namespace inkle::ops {
namespace {

constexpr std::string_view kSchema = "(self: tensor) -> tensor";
using graph::Argument;

constexpr OpDef row(std::string_view name, std::string_view aten, std::string_view doc,
                    infer::Types (*rule)(graph::Inference&), void (*lower)(Lowering&),
                    void (*reference)(Evaluation&), SampleFunction sample) {
  return {.name = name,
          .schema = kSchema,
          .doc = doc,
          .traits = kPointwise,
          .infer = rule,
          .lower = lower,
          .reference = reference,
          .aten = aten,
          .samples = sample};
}

// floor, ceil, trunc and round leave integers as they are.
template <Opcode kOp>
Val round_value(BodyBuilder& b, Val x) {
  return abi::is_float(b.dtype(x)) ? b.unary(kOp, x) : x;
}

Val sign_value(BodyBuilder& b, Val x) {
  if (b.dtype(x) == DType::boolean) return x;
  const Val zero = constant_like(b, x, 0), one = constant_like(b, x, 1);
  const Val negative = b.select(b.less(x, zero), constant_like(b, x, -1), zero);
  return b.select(b.less(zero, x), one, negative);
}

Val abs_value(BodyBuilder& b, Val x) {
  const DType dtype = b.dtype(x);
  return dtype == DType::boolean || dtype == DType::u8 ? x : b.unary(Opcode::abs, x);
}

Val logical_not_value(BodyBuilder& b, Val x) { return b.logical_not(b.cast(x, DType::boolean)); }

Val is_nan_value(BodyBuilder& b, Val x) {
  return abi::is_float(b.dtype(x)) ? b.unary(Opcode::is_nan, x)
                                   : b.constant(DType::boolean, std::int64_t{0});
}

Val is_inf_value(BodyBuilder& b, Val x) {
  return abi::is_float(b.dtype(x)) ? b.unary(Opcode::is_inf, x)
                                   : b.constant(DType::boolean, std::int64_t{0});
}

// Infinity of one sign.
template <int kSign>
Val is_signed_inf_value(BodyBuilder& b, Val x) {
  if (!abi::is_float(b.dtype(x))) return b.constant(DType::boolean, std::int64_t{0});
  const double infinity = std::numeric_limits<double>::infinity() * kSign;
  return b.binary(Opcode::equal, x, b.constant(b.dtype(x), infinity));
}

Val sinc_value(BodyBuilder& b, Val x) {
  const Val product = b.mul(x, constant_like(b, x, std::numbers::pi));
  const Val ratio = b.div(b.unary(Opcode::sin, product), product);
  return b.select(b.binary(Opcode::equal, x, constant_like(b, x, 0)), constant_like(b, x, 1),
                  ratio);
}

Val entropy_value(BodyBuilder& b, Val x) {
  const Val zero = constant_like(b, x, 0);
  const Val inner = b.neg(b.mul(x, b.unary(Opcode::log, x)));
  const double infinity = std::numeric_limits<double>::infinity();
  const Val other =
      b.select(b.binary(Opcode::equal, x, zero), zero, constant_like(b, x, -infinity));
  const Val value = b.select(b.less(zero, x), inner, other);
  return b.select(b.unary(Opcode::is_nan, x), x, value);
}

double entropy_reference(double x) {
  if (std::isnan(x)) return x;
  if (x > 0) return -x * std::log(x);
  return x == 0 ? 0.0 : -std::numeric_limits<double>::infinity();
}

infer::Types infer_square(graph::Inference& args) {
  infer::Types types = infer::same(args);
  if (types[0].dtype == DType::boolean) types[0].dtype = DType::i64;
  return types;
}

void ref_bitwise_not(Evaluation& e) {
  const RefTensor& x = e.tensor(0);
  const bool is_bool = x.dtype == DType::boolean;
  for (std::size_t p = 0; p < x.count(); ++p) {
    e.result().set(p, is_bool ? std::int64_t{x.integer(p) == 0} : ~x.integer(p));
  }
}

// --- logit, nan_to_num
// ----------------------------------------------------------------------------

Val logit_value(Lowering& l, BodyBuilder& b, Val x) {
  const Val one = constant_like(b, x, 1);
  if (!l.args().is_none(1)) {
    const double eps = l.args().real(1);
    // Below the lower bound first, as ATen does where the bounds cross.
    const Val low = constant_like(b, x, eps), high = b.sub(one, low);
    x = b.select(b.less(x, low), low, b.select(b.less(high, x), high, x));
  }
  return b.unary(Opcode::log, b.div(x, b.sub(one, x)));
}

double logit_reference(Evaluation& e, double x) {
  if (!e.is_none(1)) x = x < e.real(1) ? e.real(1) : x > 1 - e.real(1) ? 1 - e.real(1) : x;
  return std::log(x / (1 - x));
}

// The largest finite value of a float dtype.
double largest(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return 65504.0;
    case DType::bf16:
      return std::bit_cast<float>(0x7f7f0000u);
    case DType::f32:
      return std::numeric_limits<float>::max();
    default:
      return std::numeric_limits<double>::max();
  }
}

Val nan_to_num_value(Lowering& l, BodyBuilder& b, Val x) {
  if (!abi::is_float(b.dtype(x))) return x;
  const double limit = largest(l.result_type().dtype);
  const auto number = [&](std::size_t i, double otherwise) {
    return constant_like(b, x, l.args().is_none(i) ? otherwise : l.args().real(i));
  };
  const double infinity = std::numeric_limits<double>::infinity();
  const auto is = [&](double value) {
    return b.binary(Opcode::equal, x, constant_like(b, x, value));
  };
  Val r = b.select(is(-infinity), number(3, -limit), x);
  r = b.select(is(infinity), number(2, limit), r);
  return b.select(b.unary(Opcode::is_nan, x), number(1, 0), r);
}

double nan_to_num_reference(Evaluation& e, double x) {
  const double limit = largest(e.result().dtype);
  if (std::isnan(x)) return e.is_none(1) ? 0 : e.real(1);
  if (std::isinf(x) && x > 0) return e.is_none(2) ? limit : e.real(2);
  if (std::isinf(x)) return e.is_none(3) ? -limit : e.real(3);
  return x;
}

// --- round with decimals
// --------------------------------------------------------------------------

Val round_decimals_value(Lowering& l, BodyBuilder& b, Val x) {
  if (!abi::is_float(b.dtype(x))) return x;
  const std::int64_t decimals = l.args().constant_integer(1);
  if (decimals == 0) return b.unary(Opcode::round_even, x);
  const Val scale = constant_like(b, x, std::pow(10.0, static_cast<double>(std::abs(decimals))));
  return decimals > 0 ? b.div(b.unary(Opcode::round_even, b.mul(x, scale)), scale)
                      : b.mul(b.unary(Opcode::round_even, b.div(x, scale)), scale);
}

double round_decimals_reference(Evaluation& e, double x) {
  const double scale = std::pow(10.0, static_cast<double>(e.integer(1)));
  return std::nearbyint(x * scale) / scale;
}

std::vector<graph::Sample> logit_samples() {
  return {{"eps",
           [](SampleBuilder& s) {
             return std::vector<Argument>{s.free_tensor({3, 5}, 0.05, 0.95), 0.1};
           }},
          {"crossed",
           [](SampleBuilder& s) {
             return std::vector<Argument>{s.free_tensor({3, 5}, 0.05, 0.95), 0.6};
           }},
          {"plain", [](SampleBuilder& s) {
             return std::vector<Argument>{s.free_tensor({3, 5}, 0.05, 0.95)};
           }}};
}

std::vector<graph::Sample> round_decimals_samples() {
  return {{"two", [](SampleBuilder& s) {
             return std::vector<Argument>{s.free_tensor({7}, -20, 20), s.constant(2)};
           }}};
}

constexpr auto kIdentity = [](std::int64_t x) { return x; };

constexpr OpDef kNumeric[] =
    {
        row("abs", "aten::abs aten::absolute", "Absolute value.", infer::same,
            lower_unary<abs_value>,
            ref_unary_split<[](double x) { return std::abs(x); },
                            [](std::int64_t x) { return x < 0 ? wrapping_sub(0, x) : x; }>,
            samples::unary),
        row("bitwise_not", "aten::bitwise_not", "All bits inverted; logical not of bool.",
            infer::same, lower_unary<[](BodyBuilder& b, Val x) { return b.logical_not(x); }>,
            ref_bitwise_not, samples::unary_integer),
        row("ceil", "aten::ceil", "Smallest integer not below.", infer::same,
            lower_unary<round_value<Opcode::ceil>>,
            ref_unary_split<[](double x) { return std::ceil(x); }, kIdentity>, samples::unary),
        row("deg2rad", "aten::deg2rad", "Degrees to radians.", infer::float_unary,
            lower_unary<[](BodyBuilder& b, Val x) {
              return b.mul(x, constant_like(b, x, std::numbers::pi / 180));
            },
                        In::as_float>,
            ref_unary<[](double x) { return x * (std::numbers::pi / 180); }, In::as_float>,
            samples::unary_float),
        row("floor", "aten::floor", "Largest integer not above.", infer::same,
            lower_unary<round_value<Opcode::floor>>,
            ref_unary_split<[](double x) { return std::floor(x); }, kIdentity>, samples::unary),
        row("frac", "aten::frac", "Fractional part, with the sign of the operand.", infer::same,
            lower_unary<[](BodyBuilder& b, Val x) { return b.sub(x, b.unary(Opcode::trunc, x)); }>,
            ref_unary<[](double x) { return x - std::trunc(x); }>, samples::unary_float),
        row("isfinite", "aten::isfinite", "True where neither infinite nor NaN.", infer::unary_bool,
            lower_unary<[](BodyBuilder& b, Val x) {
              return b.logical_not(b.logical_or(is_nan_value(b, x), is_inf_value(b, x)));
            }>,
            ref_unary<[](double x) { return std::isfinite(x); }>, samples::unary),
        row("isinf", "aten::isinf", "True where infinite.", infer::unary_bool,
            lower_unary<is_inf_value>, ref_unary<[](double x) { return std::isinf(x); }>,
            samples::unary),
        row("isnan", "aten::isnan", "True where NaN.", infer::unary_bool, lower_unary<is_nan_value>,
            ref_unary<[](double x) { return std::isnan(x); }>, samples::unary),
        row("isneginf", "aten::isneginf", "True where minus infinity.", infer::unary_bool,
            lower_unary<is_signed_inf_value<-1>>,
            ref_unary<[](double x) { return (x < 0) && std::isinf(x); }>, samples::unary),
        row("isposinf", "aten::isposinf", "True where plus infinity.", infer::unary_bool,
            lower_unary<is_signed_inf_value<1>>,
            ref_unary<[](double x) { return (x > 0) && std::isinf(x); }>, samples::unary),
        row("logical_not", "aten::logical_not", "True where zero.", infer::unary_bool,
            lower_unary<logical_not_value>, ref_unary<[](double x) { return x == 0; }>,
            samples::unary),
        {.name = "logit",
         .schema = "(self: tensor, eps: real? = none) -> tensor",
         .doc = "log(x / (1 - x)); with eps, x is first clamped to [eps, 1 - eps].",
         .traits = kPointwise,
         .infer = infer::float_unary,
         .lower = lower_unary_with<logit_value, In::as_float>,
         .reference = ref_unary_with<logit_reference, In::as_float>,
         .aten = "aten::logit aten::special_logit",
         .samples = logit_samples},
        {.name = "nan_to_num",
         .schema = "(self: tensor, nan: real? = none, posinf: real? = none, neginf: real? = none)"
                   " -> tensor",
         .doc = "Replaces NaN (by 0) and infinities (by the largest finite values).",
         .traits = kPointwise,
         .infer = infer::same,
         .lower = lower_unary_with<nan_to_num_value>,
         .reference = ref_unary_with<nan_to_num_reference>,
         .aten = "aten::nan_to_num",
         .samples = samples::unary_float},
        row("neg", "aten::neg aten::negative", "Minus x; integers wrap.", infer::same,
            lower_unary<[](BodyBuilder& b, Val x) { return b.neg(x); }>,
            ref_unary_split<[](double x) { return -x; },
                            [](std::int64_t x) { return wrapping_sub(0, x); }>,
            samples::unary_number),
        row("rad2deg", "aten::rad2deg", "Radians to degrees.", infer::float_unary,
            lower_unary<[](BodyBuilder& b, Val x) {
              return b.mul(x, constant_like(b, x, 180 / std::numbers::pi));
            },
                        In::as_float>,
            ref_unary<[](double x) { return x * (180 / std::numbers::pi); }, In::as_float>,
            samples::unary_float),
        row("reciprocal", "aten::reciprocal", "One over x.", infer::float_unary,
            lower_unary<[](BodyBuilder& b, Val x) { return b.div(constant_like(b, x, 1), x); },
                        In::as_float>,
            ref_unary<[](double x) { return 1 / x; }, In::as_float>, samples::unary_positive),
        row("round", "aten::round", "Nearest integer, ties to even.", infer::same,
            lower_unary<round_value<Opcode::round_even>>,
            ref_unary_split<[](double x) { return std::nearbyint(x); }, kIdentity>, samples::unary),
        {.name = "round_decimals",
         .schema = "(self: tensor, decimals: integer = 0) -> tensor",
         .doc = "Rounds to that many decimals, ties to even; negative: to tens, hundreds, ...",
         .traits = kPointwise,
         .infer = infer::same,
         .lower = lower_unary_with<round_decimals_value>,
         .reference = ref_unary_with<round_decimals_reference>,
         .aten = "aten::round.decimals aten::special_round",
         .samples = round_decimals_samples},
        row("sign", "aten::sign aten::sgn", "-1, 0 or 1; 0 of NaN.", infer::same,
            lower_unary<sign_value>,
            ref_unary<[](double x) { return (x > 0 ? 1.0 : 0.0) - (x < 0 ? 1.0 : 0.0); }>,
            samples::unary),
        row("signbit", "aten::signbit", "True where the sign bit is set.", infer::unary_bool,
            lower_unary<[](BodyBuilder& b, Val x) {
              if (abi::is_float(b.dtype(x))) return b.unary(Opcode::sign_bit, x);
              if (b.dtype(x) == DType::boolean) return b.constant(DType::boolean, std::int64_t{0});
              return b.less(x, constant_like(b, x, 0));
            }>,
            ref_unary<[](double x) { return std::signbit(x); }>, samples::unary),
        row("sinc", "aten::sinc aten::special_sinc", "sin(pi x) / (pi x), 1 at 0.",
            infer::float_unary, lower_unary<sinc_value, In::as_float>,
            ref_unary<
                [](double x) {
                  const double p = std::numbers::pi * x;
                  return x == 0 ? 1.0 : std::sin(p) / p;
                },
                In::as_float>,
            samples::unary_float),
        row("special_entr", "aten::special_entr", "-x log(x), 0 at 0, -inf below.",
            infer::float_unary, lower_unary<entropy_value, In::as_float>,
            ref_unary<entropy_reference, In::as_float>, samples::unary_positive),
        row("square", "aten::square", "x * x; bool becomes i64.", infer_square,
            lower_unary_with<[](Lowering& l, BodyBuilder& b, Val x) {
              const DType dtype = abi::compute_type(l.result_type().dtype);
              return b.mul(b.cast(x, dtype), b.cast(x, dtype));
            }>,
            ref_unary_split<[](double x) { return x * x; },
                            [](std::int64_t x) { return wrapping_mul(x, x); }>,
            samples::unary),
        row("trunc", "aten::trunc aten::fix", "Integer part.", infer::same,
            lower_unary<round_value<Opcode::trunc>>,
            ref_unary_split<[](double x) { return std::trunc(x); }, kIdentity>, samples::unary),
};

}  // namespace

std::span<const graph::OpDef> numeric_ops() { return kNumeric; }

}  // namespace inkle::ops
