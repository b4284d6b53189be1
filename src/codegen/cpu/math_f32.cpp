// The frequent functions in f32 arithmetic. Each comes to at most 2 ULP; the bounds in the comments
// are what the exhaustive test over all f32 values finds.
#include <array>
#include <limits>

#include "codegen/cpu/math.h"
#include "codegen/cpu/math_coefficients.h"
#include "codegen/cpu/math_parts.h"

namespace inkle::codegen::cpu {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kLog2e = 1.44269504088896340736;
// log(2) in two parts, the first with zeros below so that its multiples by exponents are exact.
constexpr double kLn2High = 0.693145751953125;
constexpr double kLn2Low = 1.42860682030941723212e-6;

Value* like(Value* x, double c) { return Ir::real(Ir::type_of(x), c); }
Value* word_like(Ir& ir, Value* x, std::int64_t c) {
  return Ir::integer(ir.as_integer(Ir::type_of(x)), c);
}
Value* bits(Ir& ir, Value* x) { return ir.bitcast(x, ir.as_integer(Ir::type_of(x))); }

// x within [low, high]; a NaN stays.
Value* clamp(Ir& ir, Value* x, double low, double high) {
  return ir.fmax_second(like(x, low), ir.fmin_second(like(x, high), x));
}

}  // namespace

Value* polynomial(Ir& ir, Value* x, std::span<const double> c) {
  Value* sum = like(x, c.back());
  for (std::size_t i = c.size() - 1; i-- > 0;) sum = ir.fma(sum, x, like(x, c[i]));
  return sum;
}

Value* power_of_two(Ir& ir, Value* n, Type* to) {
  const bool wide = Ir::bits_of(to) == 64;
  Value* biased = ir.add(n, Ir::integer(Ir::type_of(n), wide ? 1023 : 127));
  return ir.bitcast(ir.shl(biased, wide ? 52 : 23), to);
}

namespace {

// p * 2^n for -300 < n < 300 with one rounding: the first product is exact, as p is near 1.
Value* scale(Ir& ir, Value* p, Value* n) {
  if (Value* scaled = ir.scale_by_power(p, n)) return scaled;
  Type* type = Ir::type_of(p);
  Value* word = ir.fp_to_signed(n, ir.as_integer(type));
  Value* half = ir.ashr(word, 1);
  Value* rest = ir.sub(word, half);
  return ir.fmul(ir.fmul(p, power_of_two(ir, half, type)), power_of_two(ir, rest, type));
}

// x = n log(2) + r.
struct Split {
  Value* n;
  Value* r;
};
Split split_exponent(Ir& ir, Value* x) {
  Value* n = ir.round_even(ir.fmul(x, like(x, kLog2e)));
  Value* r = ir.fma(n, like(x, -kLn2High), x);
  return {n, ir.fma(n, like(x, -kLn2Low), r)};
}

Value* to_word(Ir& ir, Value* n) { return ir.fp_to_signed(n, ir.as_integer(Ir::type_of(n))); }

// exp(r) - 1.
Value* exp_minus_one_kernel(Ir& ir, Value* r) {
  Value* q = polynomial(ir, r, kExp);
  return ir.fma(ir.fmul(q, r), r, r);
}

}  // namespace

Value* exp_f32(Ir& ir, Value* x) {
  // Beyond the limits the result is 0 or infinity already.
  Value* safe = clamp(ir, x, -104.5, 89);
  const Split s = split_exponent(ir, safe);
  Value* p = ir.fadd(exp_minus_one_kernel(ir, s.r), like(x, 1));
  return scale(ir, p, s.n);
}

Value* exp2_f32(Ir& ir, Value* x) {
  Value* safe = clamp(ir, x, -151, 129);
  Value* n = ir.round_even(safe);
  Value* r = ir.fsub(safe, n);
  Value* p = ir.fma(polynomial(ir, r, kExp2), r, like(x, 1));
  return scale(ir, p, n);
}

// 2^n (e + 1) - 1 with halves, so that 2^128 does not overflow.
Value* expm1_f32(Ir& ir, Value* x) {
  Value* safe = clamp(ir, x, -25, 89);
  const Split s = split_exponent(ir, safe);
  Value* e = exp_minus_one_kernel(ir, s.r);
  Value* n = ir.sub(to_word(ir, s.n), word_like(ir, x, 1));
  Value* power = power_of_two(ir, n, Ir::type_of(x));
  Value* sum = ir.fma(e, power, ir.fsub(power, like(x, 0.5)));
  Value* result = ir.fadd(sum, sum);
  // Keeps the sign of zero.
  return ir.select(ir.fcmp(Compare::eq, x, like(x, 0)), x, result);
}

namespace {

// exponent * log(2) + log(1 + f).
Value* log_kernel(Ir& ir, Value* f, Value* exponent) {
  Value* p = polynomial(ir, f, kLog);
  p = ir.fma(p, f, like(f, -0.5));
  Value* tail = ir.fmul(ir.fmul(f, f), p);
  tail = ir.fma(exponent, like(f, kLn2Low), tail);
  return ir.fma(exponent, like(f, kLn2High), ir.fadd(f, tail));
}

// The exponent e of x = 2^e m with m in [2/3, 4/3), as bits of the exponent field.
Value* exponent_bits(Ir& ir, Value* x) {
  Value* offset = ir.sub(bits(ir, x), word_like(ir, x, 0x3f2aaaab));
  return ir.bit_and(offset, word_like(ir, x, -0x800000));
}

Value* log_special(Ir& ir, Value* result, Value* x, double zero) {
  Value* infinite = ir.fcmp(Compare::eq, x, like(x, kInfinity));
  result = ir.select(infinite, like(x, kInfinity), result);
  result = ir.select(ir.fcmp(Compare::lt, x, like(x, zero)), like(x, kNan), result);
  result = ir.select(ir.fcmp(Compare::eq, x, like(x, zero)), like(x, -kInfinity), result);
  return ir.select(ir.is_nan(x), x, result);
}

}  // namespace

Value* log_f32(Ir& ir, Value* x) {
  Value* subnormal = ir.fcmp(Compare::lt, x, like(x, 0x1p-126));
  Value* scaled = ir.select(subnormal, ir.fmul(x, like(x, 0x1p23)), x);
  Value* e = exponent_bits(ir, scaled);
  Value* m = ir.bitcast(ir.sub(bits(ir, scaled), e), Ir::type_of(x));
  Value* exponent = ir.signed_to_fp(ir.ashr(e, 23), Ir::type_of(x));
  exponent = ir.select(subnormal, ir.fsub(exponent, like(x, 23)), exponent);
  return log_special(ir, log_kernel(ir, ir.fsub(m, like(x, 1)), exponent), x, 0);
}

Value* log1p_f32(Ir& ir, Value* x) {
  // 1 + x = 2^e (1 + f): f is x itself where e is 0. Beyond 2^100, where 2^-e may leave the range,
  // 1 + x is x.
  Value* sum = ir.fadd(x, like(x, 1));
  Value* e = exponent_bits(ir, sum);
  Value* factor = ir.bitcast(ir.sub(word_like(ir, x, 0x3f800000), e), Ir::type_of(x));
  Value* f = ir.fma(x, factor, ir.fsub(factor, like(x, 1)));
  Value* m = ir.bitcast(ir.sub(bits(ir, sum), e), Ir::type_of(x));
  f = ir.select(ir.fcmp(Compare::gt, x, like(x, 0x1p100)), ir.fsub(m, like(x, 1)), f);
  Value* exponent = ir.signed_to_fp(ir.ashr(e, 23), Ir::type_of(x));
  Value* result = log_special(ir, log_kernel(ir, f, exponent), x, -1);
  return ir.select(ir.fcmp(Compare::eq, x, like(x, 0)), x, result);
}

Value* tanh_f32(Ir& ir, Value* x) {
  Value* a = ir.fabs(x);
  Value* square = ir.fmul(x, x);
  Value* small = ir.fma(ir.fmul(polynomial(ir, square, kTanh), square), a, a);
  // 1 - 2 / (exp(2 a) + 1), which is 1 from 9.02 on.
  Value* e = exp_f32(ir, ir.fmin_second(like(x, 20), ir.fadd(a, a)));
  Value* large = ir.fsub(like(x, 1), ir.fdiv(like(x, 2), ir.fadd(e, like(x, 1))));
  Value* result = ir.select(ir.fcmp(Compare::lt, a, like(x, 0.63)), small, large);
  return ir.copysign(result, x);
}

Value* erf_f32(Ir& ir, Value* x) {
  Value* a = ir.fabs(x);
  Value* square = ir.fmul(x, x);
  Value* small = ir.fma(polynomial(ir, square, kErfSmall), a, a);
  // 1 - erfc, which is 1 from 3.92 on.
  Value* q = polynomial(ir, ir.fmin_second(like(x, 4), a), kErfLarge);
  Value* large = ir.fsub(like(x, 1), exp_f32(ir, ir.fneg(q)));
  return ir.copysign(ir.select(ir.fcmp(Compare::lt, a, like(x, 1)), small, large), x);
}

Reduced reduce_quadrant(Ir& ir, Value* x) {
  const int lanes = Ir::lanes_of(x);
  Type* wide = ir.f64(lanes);
  Value* w = ir.fp_extend(x, wide);
  constexpr double kHigh = 1.57079632679489655800;
  constexpr double kLow = 6.12323399573676603587e-17;
  Value* k = ir.round_even(ir.fmul(w, like(w, 0.63661977236758134308)));
  Value* r = ir.fma(k, like(w, -kHigh), w);
  r = ir.fma(k, like(w, -kLow), r);
  // The low bits of an integer below 2^51 after adding 1.5 * 2^52.
  Value* shifted = bits(ir, ir.fadd(k, like(w, 0x1.8p52)));
  return {r, ir.truncate(shifted, ir.integer_type(32, lanes))};
}

Value* unless_huge(Ir& ir, Value* x, std::string_view name, const std::function<Value*()>& fast) {
  Value* a = ir.fabs(x);
  Value* huge = ir.bit_and(ir.fcmp(Compare::ge, a, like(x, 0x1p40)),
                           ir.fcmp(Compare::ne, a, like(x, kInfinity)));
  return ir.branch(
      ir.any(huge), false,
      [&] {
        Value* const operands[] = {x};
        return Values{call_lanes(ir, name, operands)};
      },
      [&] { return Values{fast()}; })[0];
}

namespace {

Value* sine(Ir& ir, Value* x, bool cosine) {
  const Reduced reduced = reduce_quadrant(ir, x);
  Value* r = ir.fp_truncate(reduced.remainder, Ir::type_of(x));
  Value* square = ir.fmul(r, r);
  Value* s = ir.fma(ir.fmul(polynomial(ir, square, kSin), square), r, r);
  Value* tail = ir.fma(polynomial(ir, square, kCos), square, like(x, -0.5));
  Value* c = ir.fma(tail, square, like(x, 1));
  Value* quadrant = reduced.quadrant;
  Type* word = Ir::type_of(quadrant);
  if (cosine) quadrant = ir.add(quadrant, Ir::integer(word, 1));
  Value* odd = ir.icmp(Compare::ne, ir.bit_and(quadrant, Ir::integer(word, 1)), Ir::zero(word));
  Value* chosen = ir.select(odd, c, s);
  Value* sign = ir.shl(ir.bit_and(quadrant, Ir::integer(word, 2)), 30);
  Value* result = ir.bitcast(ir.bit_xor(bits(ir, chosen), sign), Ir::type_of(x));
  if (cosine) return result;
  return ir.select(ir.fcmp(Compare::eq, x, like(x, 0)), x, result);
}

}  // namespace

Value* sin_f32(Ir& ir, Value* x) {
  return unless_huge(ir, x, "sinf", [&] { return sine(ir, x, false); });
}
Value* cos_f32(Ir& ir, Value* x) {
  return unless_huge(ir, x, "cosf", [&] { return sine(ir, x, true); });
}

}  // namespace inkle::codegen::cpu
