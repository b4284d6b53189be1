// Clamps, powers, and formulas of three tensors.
#include <limits>

#include "base/error.h"
#include "ops/elementwise.h"
#include "ops/table.h"

namespace inkle::ops {
namespace {

using graph::Argument;
using graph::Inference;
using infer::Types;
using Args = std::vector<Argument>;

// --- clamp
// ------------------------------------------------------------------------------------------

DType clamp_dtype(const Inference& args) {
  Promotion promotion;
  for (std::size_t i = 0; i < args.size(); ++i) promotion.add(args, i);
  return promotion.result();
}

Types infer_clamp(Inference& args) {
  if (args.size() == 3 && args.is_none(1) && args.is_none(2)) args.fail("needs a bound");
  const DType dtype = clamp_dtype(args);
  return {args.size() == 3 ? infer::broadcast_all(args, {0, 1, 2}, dtype)
                           : infer::broadcast_all(args, {0, 1}, dtype)};
}

// The numbers that an integer dtype holds.
std::pair<std::int64_t, std::int64_t> limits(DType dtype) {
  if (dtype == DType::u8) return {0, 255};
  const auto bits = static_cast<int>(8 * abi::size_of(dtype) - 1);
  const std::int64_t high = bits == 63 ? INT64_MAX : (std::int64_t{1} << bits) - 1;
  return {-high - 1, high};
}

// A bound of clamp. Numbers that an integer dtype does not hold become the nearest that it does.
Val clamp_bound(Lowering& l, BodyBuilder& b, std::size_t arg, Indices i, DType dtype) {
  const auto* number = std::get_if<Expr>(&l.node().args[arg]);
  if (number == nullptr || !abi::is_integer(dtype)) return operand(l, b, arg, i, dtype);
  const auto [low, high] = limits(dtype);
  if (const auto value = number->constant())
    return b.constant(dtype, std::clamp(*value, low, high));
  if (dtype == DType::i64) return operand(l, b, arg, i, dtype);
  const Expr most = l.context().constant(high);
  return b.cast(b.index(sym::max(l.context().constant(low), sym::min(*number, most))), dtype);
}

// kLow and kHigh: positions of the bounds, 0 for none.
template <std::size_t kLow, std::size_t kHigh>
void lower_clamp(Lowering& l) {
  const graph::Type& r = l.result_type();
  l.result(l.pointwise(r.sizes, r.dtype, [&](BodyBuilder& b, Indices i) {
    Val x = operand(l, b, 0, i, r.dtype);
    if (kLow != 0 && !l.args().is_none(kLow)) x = b.max(x, clamp_bound(l, b, kLow, i, r.dtype));
    if (kHigh != 0 && !l.args().is_none(kHigh)) x = b.min(x, clamp_bound(l, b, kHigh, i, r.dtype));
    return x;
  }));
}

void ref_clamp_integers(Evaluation& e, std::size_t low, std::size_t high) {
  const auto [least, most] = limits(e.result().dtype);
  const auto bound = [&, least = least, most = most](std::size_t arg) {
    RefTensor t = e.operand(arg);
    if (!e.is_tensor(arg)) t.set(0, std::clamp(e.whole(arg), least, most));
    return t;
  };
  const RefTensor x = e.operand(0);
  const bool has_low = low != 0 && !e.is_none(low), has_high = high != 0 && !e.is_none(high);
  const RefTensor lows = has_low ? bound(low) : x, highs = has_high ? bound(high) : x;
  for_each_index(e.result().sizes, [&](std::span<const std::int64_t> i, std::size_t p) {
    std::int64_t value = x.integer(broadcast_position(x, i));
    if (has_low) value = std::max(value, lows.integer(broadcast_position(lows, i)));
    if (has_high) value = std::min(value, highs.integer(broadcast_position(highs, i)));
    e.result().set(p, value);
  });
}

template <std::size_t kLow, std::size_t kHigh>
void ref_clamp(Evaluation& e) {
  const DType dtype = e.result().dtype;
  if (abi::is_integer(dtype)) return ref_clamp_integers(e, kLow, kHigh);
  for_each_index(e.result().sizes, [&](std::span<const std::int64_t> i, std::size_t p) {
    const auto value = [&](std::size_t arg) {
      const RefTensor t = e.operand(arg);
      return round_to(dtype, t.real(broadcast_position(t, i)));
    };
    const auto pick = [&](double x, double bound, bool low) {
      if (std::isnan(x) || std::isnan(bound)) return std::isnan(x) ? x : bound;
      return low ? std::max(x, bound) : std::min(x, bound);
    };
    double x = value(0);
    if (kLow != 0 && !e.is_none(kLow)) x = pick(x, value(kLow), true);
    if (kHigh != 0 && !e.is_none(kHigh)) x = pick(x, value(kHigh), false);
    e.result().set(p, x);
  });
}

// --- pow
// --------------------------------------------------------------------------------------------

std::optional<double> constant_exponent(const Inference& args) {
  const Argument& a = args.arg(1);
  if (const auto* d = std::get_if<double>(&a)) return *d;
  if (const auto* flag = std::get_if<bool>(&a)) return *flag ? 1 : 0;
  if (const auto* e = std::get_if<Expr>(&a); e != nullptr && e->is_constant()) {
    return static_cast<double>(*e->constant());
  }
  return std::nullopt;
}

// Eager raises for the sign of a number's exponent, not of a tensor's. Where the number depends on
// the call, a guard leaves negative ones to eager; where the first one is negative, the op is
// eager's.
bool is_negative_exponent(const Inference& args) {
  if (const std::optional<double> exponent = constant_exponent(args)) return *exponent < 0;
  const auto* exponent = std::get_if<Expr>(&args.arg(1));
  if (exponent == nullptr) return false;
  const Expr zero = args.context().constant(0);
  const bool may_be_negative = sym::less(*exponent, zero).value_or(true);
  if (may_be_negative && sym::hint(*exponent).value_or(0) < 0) {
    unsupported("pow of integers: the exponent {} was negative", sym::to_string(*exponent));
  }
  return args.context().guard_less(*exponent, zero);
}

Types infer_pow(Inference& args) {
  if (!abi::is_float(common_dtype(args, {0, 1})) && is_negative_exponent(args)) {
    args.fail("integers have no negative integer powers");
  }
  return infer::binary(args);
}

// Square and multiply: exact in wrapping arithmetic.
Val integer_power(BodyBuilder& b, Val x, std::int64_t exponent) {
  Val result = constant_like(b, x, 1);
  for (Val square = x; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0) result = b.mul(result, square);
    if (exponent > 1) square = b.mul(square, square);
  }
  return result;
}

// The same with the bits of an exponent that is only known at run time. A negative exponent leaves
// 1 and -1, of everything else 0.
Val integer_power(BodyBuilder& b, Val x, Val exponent) {
  const DType dtype = b.dtype(x);
  const Val zero = constant_like(b, x, 0), one = constant_like(b, x, 1);
  const Val minus_one = constant_like(b, x, -1);
  Val result = one, square = x;
  const std::int64_t bits = 8 * abi::size_of(dtype) - (dtype == DType::u8 ? 0 : 1);
  for (std::int64_t k = 0; k < bits; ++k) {
    const Val shifted = b.binary(Opcode::shift_right, exponent, b.constant(dtype, std::int64_t{k}));
    const Val is_set = b.binary(Opcode::equal, b.binary(Opcode::bit_and, shifted, one), one);
    result = b.select(is_set, b.mul(result, square), result);
    square = b.mul(square, square);
  }
  if (dtype == DType::u8) return result;
  const Val is_odd = b.binary(Opcode::equal, b.binary(Opcode::bit_and, exponent, one), one);
  Val negative =
      b.select(b.binary(Opcode::equal, x, minus_one), b.select(is_odd, minus_one, one), zero);
  negative = b.select(b.binary(Opcode::equal, x, one), one, negative);
  return b.select(b.less(exponent, zero), negative, result);
}

// The exponents for which eager has a formula of its own; others it rounds to the dtype.
Val real_power(BodyBuilder& b, Val x, double exponent, DType dtype) {
  const Val one = constant_like(b, x, 1);
  if (exponent == 0) return one;
  if (exponent == 1) return x;
  if (exponent == 2) return b.mul(x, x);
  if (exponent == 3) return b.mul(b.mul(x, x), x);
  if (exponent == 0.5) return b.unary(Opcode::sqrt, x);
  if (exponent == -0.5) return b.unary(Opcode::rsqrt, x);
  if (exponent == -1) return b.div(one, x);
  if (exponent == -2) return b.div(one, b.mul(x, x));
  return b.binary(Opcode::pow, x, constant_like(b, x, round_to(dtype, exponent)));
}

template <bool kDouble>
void lower_pow(Lowering& l) {
  const DType in = kDouble ? DType::f64 : common_dtype(l.args(), {0, 1});
  const graph::Type& r = l.result_type();
  const std::optional<double> exponent = constant_exponent(l.args());
  l.result(l.pointwise(r.sizes, r.dtype, [&](BodyBuilder& b, Indices i) {
    const Val x = operand(l, b, 0, i, in);
    if (exponent && abi::is_float(in)) return real_power(b, x, *exponent, in);
    if (in == DType::boolean) return b.logical_or(x, b.logical_not(operand(l, b, 1, i, in)));
    if (exponent) return integer_power(b, x, l.args().whole(1));
    const Val y = operand(l, b, 1, i, in);
    return abi::is_float(in) ? b.binary(Opcode::pow, x, y) : integer_power(b, x, y);
  }));
}

std::int64_t integer_power_reference(std::int64_t base, std::int64_t exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 == 0 ? 1 : -1) : 0;
  std::int64_t result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0) result = wrapping_mul(result, base);
    base = wrapping_mul(base, base);
  }
  return result;
}

void ref_pow(Evaluation& e) {
  // A root by number is the square root also at minus infinity.
  if (!e.is_tensor(1) && e.real(1) == 0.5 && e.result().is_real()) {
    return ref_binary<[](double a, double) { return std::sqrt(a); }>(e);
  }
  ref_binary_split<[](double a, double b) { return std::pow(a, b); }, integer_power_reference>(e);
}

Types infer_float_power(Inference& args) {
  (void)common_dtype(args, {0, 1});
  return {infer::broadcast_all(args, {0, 1}, DType::f64)};
}

void ref_float_power(Evaluation& e) {
  const RefTensor x = e.operand(0), y = e.operand(1);
  for_each_index(e.result().sizes, [&](std::span<const std::int64_t> i, std::size_t p) {
    e.result().set(p, std::pow(x.real(broadcast_position(x, i)), y.real(broadcast_position(y, i))));
  });
}

// --- Three tensors
// ----------------------------------------------------------------------------------

Types infer_three(Inference& args) {
  return {infer::broadcast_all(args, {0, 1, 2}, common_dtype(args, {0, 1, 2}))};
}

template <auto F>
void lower_three(Lowering& l) {
  const DType in = common_dtype(l.args(), {0, 1, 2});
  const graph::Type& r = l.result_type();
  l.result(l.pointwise(r.sizes, r.dtype, [&](BodyBuilder& b, Indices i) {
    return F(l, b, operand(l, b, 0, i, in), operand(l, b, 1, i, in), operand(l, b, 2, i, in));
  }));
}

template <auto F>
void ref_three(Evaluation& e) {
  const DType in = evaluated_common(e, {0, 1, 2}, In::own);
  const RefTensor x = e.operand(0), y = e.operand(1), z = e.operand(2);
  for_each_index(e.result().sizes, [&](std::span<const std::int64_t> i, std::size_t p) {
    const auto value = [&](const RefTensor& t) {
      return rounded_operand(t, broadcast_position(t, i), in, OperandCast::rounded);
    };
    e.result().set(p, static_cast<double>(F(e, value(x), value(y), value(z))));
  });
}

Val addcmul_value(Lowering& l, BodyBuilder& b, Val x, Val y, Val z) {
  return b.add(x, b.mul(b.mul(constant_argument(l, b, x, 3), y), z));
}
Val addcdiv_value(Lowering& l, BodyBuilder& b, Val x, Val y, Val z) {
  if (!abi::is_float(b.dtype(x))) l.args().fail("is not defined on integers");
  return b.add(x, b.div(b.mul(constant_like(b, x, l.args().real(3)), y), z));
}

Val fma_value(Lowering&, BodyBuilder& b, Val x, Val y, Val z) {
  return abi::is_float(b.dtype(x)) ? b.fma(x, y, z) : b.add(b.mul(x, y), z);
}

// The weight below a half goes from the start, else from the end, as ATen for accuracy.
Val lerp_value(Lowering&, BodyBuilder& b, Val start, Val end, Val weight) {
  const Val difference = b.sub(end, start);
  const Val is_near = b.less(b.unary(Opcode::abs, weight), constant_like(b, weight, 0.5));
  const Val from_start = b.fma(weight, difference, start);
  const Val from_end = b.fma(b.sub(weight, constant_like(b, weight, 1)), difference, end);
  return b.select(is_near, from_start, from_end);
}

double lerp_reference(Evaluation&, double start, double end, double weight) {
  return std::abs(weight) < 0.5 ? start + weight * (end - start)
                                : end - (end - start) * (1 - weight);
}

Types infer_lerp(Inference& args) {
  Types types = infer_three(args);
  if (!abi::is_float(types[0].dtype)) args.fail("needs floats");
  return types;
}

// --- Samples
// ----------------------------------------------------------------------------------------

std::vector<DType> floats() { return {DType::f32, DType::f64, DType::bf16, DType::f16}; }

std::vector<graph::Sample> clamp_samples() {
  return {{"numbers",
           [](SampleBuilder& s) {
             return Args{s.free_tensor({3, 5}, -4, 4), -1.0, 1.5};
           },
           floats()},
          {"upper integer",
           [](SampleBuilder& s) {
             return Args{s.free_tensor({3, 5}, -4, 4), graph::None{}, s.constant(1)};
           },
           {DType::f32, DType::i32}},
          {"bounds that the dtype does not hold",
           [](SampleBuilder& s) {
             return Args{s.free_tensor({3, 5}, 0, 4), s.constant(-300), s.constant(70000)};
           },
           {DType::u8, DType::i8, DType::i16, DType::i64}},
          {"tensors", [](SampleBuilder& s) {
             return Args{s.free_tensor({3, 5}, -4, 4), s.tensor({s.size(5)}, -2, 0),
                         s.tensor({s.size(5)}, 0, 2)};
           }}};
}
std::vector<graph::Sample> bound_samples() {
  return {{"number",
           [](SampleBuilder& s) {
             return Args{s.free_tensor({3, 5}, -4, 4), 0.5};
           },
           floats()},
          {"tensor", [](SampleBuilder& s) {
             return Args{s.free_tensor({3, 5}, -4, 4), s.tensor({s.size(5)})};
           }}};
}
std::vector<graph::Sample> pow_samples() {
  return {{"square",
           [](SampleBuilder& s) {
             return Args{s.free_tensor({3, 5}), s.constant(2)};
           },
           {DType::f32, DType::bf16, DType::i32, DType::i64}},
          {"cube",
           [](SampleBuilder& s) {
             return Args{s.free_tensor({3, 5}), 3.0};
           },
           floats()},
          {"root",
           [](SampleBuilder& s) {
             return Args{s.free_tensor({3, 5}, 0.1, 3), 0.5};
           },
           floats()},
          {"inverse",
           [](SampleBuilder& s) {
             return Args{s.free_tensor({3, 5}, 0.5, 3), -2.0};
           },
           floats()},
          {"real",
           [](SampleBuilder& s) {
             return Args{s.free_tensor({3, 5}, 0.1, 3), 1.7};
           },
           floats()},
          {"base number",
           [](SampleBuilder& s) {
             return Args{2.0, s.free_tensor({3, 5})};
           },
           floats()},
          {"integers",
           [](SampleBuilder& s) {
             return Args{s.free_tensor({3, 5}, -5, 5), s.free_tensor({3, 5}, -2, 7)};
           },
           {DType::i32, DType::i64}}};
}
std::vector<graph::Sample> float_power_samples() {
  return {{"tensors", [](SampleBuilder& s) {
             return Args{s.free_tensor({3, 5}, 0.1, 3), s.free_tensor({3, 5})};
           }}};
}
std::vector<graph::Sample> three_samples() {
  return {{"value",
           [](SampleBuilder& s) {
             return Args{s.free_tensor({3, 5}), s.tensor({s.size(5)}), s.free_tensor({3, 5}, 1, 3),
                         0.5};
           },
           floats()}};
}
std::vector<graph::Sample> fma_samples() {
  return {{"number",
           [](SampleBuilder& s) {
             return Args{s.free_tensor({3, 5}), 0.25, s.free_tensor({3, 5})};
           },
           floats()},
          {"tensors", [](SampleBuilder& s) {
             return Args{s.free_tensor({3, 5}), s.tensor({s.size(5)}), s.free_tensor({3, 5})};
           }}};
}
std::vector<graph::Sample> lerp_samples() {
  return {{"number",
           [](SampleBuilder& s) {
             return Args{s.free_tensor({3, 5}), s.free_tensor({3, 5}), 0.25};
           },
           floats()},
          {"tensor", [](SampleBuilder& s) {
             return Args{s.free_tensor({3, 5}), s.free_tensor({3, 5}), s.free_tensor({3, 5}, 0, 1)};
           }}};
}

constexpr OpDef row(std::string_view name, std::string_view schema, std::string_view aten,
                    std::string_view doc, Types (*rule)(Inference&), void (*lower)(Lowering&),
                    void (*reference)(Evaluation&), std::vector<graph::Sample> (*sample)()) {
  return {.name = name,
          .schema = schema,
          .doc = doc,
          .traits = kPointwise,
          .infer = rule,
          .lower = lower,
          .reference = reference,
          .aten = aten,
          .samples = sample};
}

constexpr OpDef kTernary[] = {
    row("addcdiv", "(self: tensor, tensor1: tensor, tensor2: tensor, value: scalar = 1) -> tensor",
        "aten::addcdiv", "self + value * tensor1 / tensor2.", infer_three,
        lower_three<addcdiv_value>, ref_three<[](Evaluation& e, double x, double y, double z) {
          return x + e.real(3) * y / z;
        }>,
        three_samples),
    row("addcmul", "(self: tensor, tensor1: tensor, tensor2: tensor, value: scalar = 1) -> tensor",
        "aten::addcmul", "self + value * tensor1 * tensor2.", infer_three,
        lower_three<addcmul_value>, ref_three<[](Evaluation& e, double x, double y, double z) {
          return x + e.real(3) * y * z;
        }>,
        three_samples),
    row("clamp", "(self: tensor, min: operand? = none, max: operand? = none) -> tensor",
        "aten::clamp aten::clamp.Tensor aten::clip aten::clip.Tensor",
        "min(max(self, min), max); NaN propagates.", infer_clamp, lower_clamp<1, 2>,
        ref_clamp<1, 2>, clamp_samples),
    row("clamp_max", "(self: tensor, max: operand) -> tensor",
        "aten::clamp_max aten::clamp_max.Tensor", "min(self, max).", infer_clamp, lower_clamp<0, 1>,
        ref_clamp<0, 1>, bound_samples),
    row("clamp_min", "(self: tensor, min: operand) -> tensor",
        "aten::clamp_min aten::clamp_min.Tensor", "max(self, min).", infer_clamp, lower_clamp<1, 0>,
        ref_clamp<1, 0>, bound_samples),
    row("float_power", "(self: operand, exponent: operand) -> tensor",
        "aten::float_power.Tensor_Tensor aten::float_power.Tensor_Scalar aten::float_power.Scalar",
        "Power in f64.", infer_float_power, lower_pow<true>, ref_float_power, float_power_samples),
    row("fma", "(a: operand, b: operand, c: operand) -> tensor", "prims::fma",
        "a * b + c, rounded once.", infer_three, lower_three<fma_value>,
        ref_three<[](Evaluation&, double x, double y, double z) { return x * y + z; }>,
        fma_samples),
    row("lerp", "(self: tensor, end: tensor, weight: operand) -> tensor",
        "aten::lerp.Scalar aten::lerp.Tensor", "self + weight * (end - self).", infer_lerp,
        lower_three<lerp_value>, ref_three<lerp_reference>, lerp_samples),
    row("pow", "(self: operand, exponent: operand) -> tensor",
        "aten::pow.Tensor_Tensor aten::pow.Tensor_Scalar aten::pow.Scalar",
        "self to the power of exponent.", infer_pow, lower_pow<false>, ref_pow, pow_samples),
};

}  // namespace

std::span<const graph::OpDef> ternary_ops() { return kTernary; }

}  // namespace inkle::ops
