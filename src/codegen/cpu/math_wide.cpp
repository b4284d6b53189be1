// The rarer functions of f32 with f64 inside: relative errors of 1e-9 and less vanish in the last
// rounding, and neither cancellation nor range needs care.
#include <array>
#include <limits>

#include "codegen/cpu/math.h"
#include "codegen/cpu/math_coefficients.h"
#include "codegen/cpu/math_parts.h"

namespace inkle::codegen::cpu {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kPi = 3.14159265358979323846;
constexpr double kLn2 = 0.69314718055994530942;

Value* like(Value* x, double c) { return Ir::real(Ir::type_of(x), c); }
Value* bits(Ir& ir, Value* x) { return ir.bitcast(x, ir.as_integer(Ir::type_of(x))); }
Value* is(Ir& ir, Compare c, Value* x, double v) { return ir.fcmp(c, x, like(x, v)); }
Value* widen(Ir& ir, Value* x) { return ir.fp_extend(x, ir.f64(Ir::lanes_of(x))); }
Value* narrow(Ir& ir, Value* w) { return ir.fp_truncate(w, ir.f32(Ir::lanes_of(w))); }

// The integer value of w, |w| < 2^51, as i64 lanes.
Value* to_integer(Ir& ir, Value* w) {
  constexpr double kMagic = 0x1.8p52;
  Value* shifted = bits(ir, ir.fadd(w, like(w, kMagic)));
  return ir.sub(shifted, bits(ir, like(w, kMagic)));
}

// exp for |x| < 700; beyond, what f32 rounds to 0 or infinity.
Value* exp_wide(Ir& ir, Value* x) {
  x = ir.fmax_second(like(x, -700), ir.fmin_second(like(x, 700), x));
  Value* n = ir.round_even(ir.fmul(x, like(x, 1 / kLn2)));
  Value* r = ir.fma(n, like(x, -kLn2), x);
  Value* p = ir.fma(ir.fmul(polynomial(ir, r, kWideExp), r), r, r);
  Value* power = power_of_two(ir, to_integer(ir, n), Ir::type_of(x));
  return ir.fma(p, power, power);
}

// Exponent and logarithm of the significand of a positive normal x.
struct Logarithm {
  Value* exponent;
  Value* fraction;
};
Logarithm log_parts(Ir& ir, Value* x) {
  Value* word = bits(ir, x);
  Type* type = Ir::type_of(word);
  constexpr std::int64_t kSqrtHalf = 0x3fe6a09e667f3bcd;
  Value* e = ir.ashr(ir.sub(word, Ir::integer(type, kSqrtHalf)), 52);
  Value* m = ir.bitcast(ir.sub(word, ir.shl(e, 52)), Ir::type_of(x));
  Value* s = ir.fdiv(ir.fsub(m, like(x, 1)), ir.fadd(m, like(x, 1)));
  Value* square = ir.fmul(s, s);
  Value* tail = ir.fmul(ir.fmul(polynomial(ir, square, kWideLog), square), s);
  // The exponent fits 32 bits, whose conversion every machine has.
  Value* small = ir.truncate(e, ir.integer_type(32, Ir::lanes_of(x)));
  return {ir.signed_to_fp(small, Ir::type_of(x)), ir.fadd(ir.fadd(s, s), tail)};
}

Value* log_special(Ir& ir, Value* result, Value* x) {
  result = ir.select(is(ir, Compare::eq, x, kInfinity), x, result);
  result = ir.select(is(ir, Compare::lt, x, 0), like(x, kNan), result);
  result = ir.select(is(ir, Compare::eq, x, 0), like(x, -kInfinity), result);
  return ir.select(ir.is_nan(x), x, result);
}

Value* log_wide(Ir& ir, Value* x) {
  const Logarithm parts = log_parts(ir, x);
  return log_special(ir, ir.fma(parts.exponent, like(x, kLn2), parts.fraction), x);
}

Value* atan_kernel(Ir& ir, Value* x) {  // |x| <= 1
  Value* square = ir.fmul(x, x);
  return ir.fma(ir.fmul(polynomial(ir, square, kWideAtan), square), x, x);
}
Value* asin_kernel(Ir& ir, Value* x) {  // |x| <= 1/2
  Value* square = ir.fmul(x, x);
  return ir.fma(ir.fmul(polynomial(ir, square, kWideAsin), square), x, x);
}

// asin of 1/2 <= a <= 1 is pi/2 minus twice this; a beyond 1 gives NaN.
Value* asin_complement(Ir& ir, Value* a) {
  return asin_kernel(ir, ir.sqrt(ir.fmul(ir.fsub(like(a, 1), a), like(a, 0.5))));
}

// x - quadrant * pi/2, |x| < 2^40, and the quadrant (integer lanes of 32 bits, modulo 4 in its low
// bits).
struct Reduced {
  Value* remainder;
  Value* quadrant;
};
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

}  // namespace

Value* exp_by_f64(Ir& ir, Value* x, double factor) {
  Value* w = widen(ir, x);
  return narrow(ir, exp_wide(ir, ir.fmul(w, like(w, factor))));
}

Value* log2_f32(Ir& ir, Value* x) {
  Value* w = widen(ir, x);
  const Logarithm parts = log_parts(ir, w);
  Value* result = ir.fma(parts.fraction, like(w, 1 / kLn2), parts.exponent);
  return narrow(ir, log_special(ir, result, w));
}

Value* log10_f32(Ir& ir, Value* x) {
  return narrow(ir,
                ir.fmul(log_wide(ir, widen(ir, x)), like(widen(ir, x), 0.43429448190325182765)));
}

Value* tan_f32(Ir& ir, Value* x) {
  return unless_huge(ir, x, "tan", [&] {
    const Reduced reduced = reduce_quadrant(ir, x);
    Value* r = reduced.remainder;
    Value* square = ir.fmul(r, r);
    Value* s = ir.fma(ir.fmul(polynomial(ir, square, kWideSin), square), r, r);
    Value* tail = ir.fma(polynomial(ir, square, kWideCos), square, like(r, -0.5));
    Value* c = ir.fma(tail, square, like(r, 1));
    Type* word = Ir::type_of(reduced.quadrant);
    Value* odd =
        ir.icmp(Compare::ne, ir.bit_and(reduced.quadrant, Ir::integer(word, 1)), Ir::zero(word));
    Value* result = ir.fdiv(ir.select(odd, ir.fneg(c), s), ir.select(odd, s, c));
    return ir.select(is(ir, Compare::eq, x, 0), x, narrow(ir, result));
  });
}

Value* asin_f32(Ir& ir, Value* x) {
  Value* w = widen(ir, x);
  Value* a = ir.fabs(w);
  Value* large = ir.fma(asin_complement(ir, a), like(w, -2), like(w, kPi / 2));
  Value* result = ir.select(is(ir, Compare::le, a, 0.5), asin_kernel(ir, a), large);
  return narrow(ir, ir.copysign(result, w));
}

Value* acos_f32(Ir& ir, Value* x) {
  Value* w = widen(ir, x);
  Value* a = ir.fabs(w);
  Value* twice = ir.fmul(asin_complement(ir, a), like(w, 2));
  Value* large = ir.select(is(ir, Compare::lt, w, 0), ir.fsub(like(w, kPi), twice), twice);
  Value* small = ir.fsub(like(w, kPi / 2), asin_kernel(ir, w));
  return narrow(ir, ir.select(is(ir, Compare::le, a, 0.5), small, large));
}

Value* atan_f32(Ir& ir, Value* x) {
  Value* w = widen(ir, x);
  Value* a = ir.fabs(w);
  Value* inverted = is(ir, Compare::gt, a, 1);
  Value* r = atan_kernel(ir, ir.select(inverted, ir.fdiv(like(w, 1), a), a));
  r = ir.select(inverted, ir.fsub(like(w, kPi / 2), r), r);
  return narrow(ir, ir.copysign(r, w));
}

Value* sinh_f32(Ir& ir, Value* x) {
  constexpr std::array<double, 4> kSeries = {1.0 / 6, 1.0 / 120, 1.0 / 5040, 1.0 / 362880};
  Value* w = widen(ir, x);
  Value* square = ir.fmul(w, w);
  Value* small = ir.fma(ir.fmul(polynomial(ir, square, kSeries), square), w, w);
  Value* e = exp_wide(ir, w);
  Value* large = ir.fmul(ir.fsub(e, ir.fdiv(like(w, 1), e)), like(w, 0.5));
  return narrow(ir, ir.select(is(ir, Compare::lt, ir.fabs(w), 0.5), small, large));
}

Value* cosh_f32(Ir& ir, Value* x) {
  Value* e = exp_wide(ir, widen(ir, x));
  return narrow(ir, ir.fmul(ir.fadd(e, ir.fdiv(like(e, 1), e)), like(e, 0.5)));
}

Value* asinh_f32(Ir& ir, Value* x) {
  Value* w = widen(ir, x);
  Value* a = ir.fabs(w);
  Value* square = ir.fmul(a, a);
  Value* large = log_wide(ir, ir.fadd(a, ir.sqrt(ir.fadd(square, like(w, 1)))));
  Value* small = ir.fma(ir.fmul(square, like(w, -1.0 / 6)), a, a);
  return narrow(ir, ir.copysign(ir.select(is(ir, Compare::lt, a, 1e-4), small, large), w));
}

Value* acosh_f32(Ir& ir, Value* x) {
  Value* w = widen(ir, x);
  Value* root = ir.sqrt(ir.fma(w, w, like(w, -1)));
  Value* result = log_wide(ir, ir.fadd(w, root));
  return narrow(ir, ir.select(is(ir, Compare::lt, w, 1), like(w, kNan), result));
}

Value* atanh_f32(Ir& ir, Value* x) {
  Value* w = widen(ir, x);
  Value* one = like(w, 1);
  Value* quotient = ir.fdiv(ir.fadd(one, w), ir.fsub(one, w));
  Value* large = ir.fmul(log_wide(ir, quotient), like(w, 0.5));
  Value* small = ir.fma(ir.fmul(ir.fmul(w, w), like(w, 1.0 / 3)), w, w);
  return narrow(ir, ir.select(is(ir, Compare::lt, ir.fabs(w), 1e-4), small, large));
}

Value* erfc_f32(Ir& ir, Value* x) {
  Value* w = widen(ir, x);
  Value* a = ir.fmin_second(like(w, 10.5), ir.fabs(w));  // 0 in f32 from 10.06 on
  Value* t = ir.fdiv(like(w, 2), ir.fadd(a, like(w, 2)));
  Value* exponent = ir.fma(ir.fneg(a), a, polynomial(ir, t, kWideErfc));
  Value* right = ir.fmul(t, exp_wide(ir, exponent));
  return narrow(ir, ir.select(is(ir, Compare::lt, w, 0), ir.fsub(like(w, 2), right), right));
}

Value* erfinv_f32(Ir& ir, Value* x) {
  Value* w = widen(ir, x);
  Value* one = like(w, 1);
  Value* v = ir.fneg(log_wide(ir, ir.fmul(ir.fsub(one, w), ir.fadd(one, w))));
  Value* centre = polynomial(ir, ir.fmin_second(v, like(w, 5)), kWideErfinvCentre);
  Value* tail = polynomial(ir, ir.fsub(ir.sqrt(v), like(w, 3)), kWideErfinvTail);
  Value* result = ir.fmul(ir.select(is(ir, Compare::lt, v, 5), centre, tail), w);
  Value* a = ir.fabs(w);
  result = ir.select(is(ir, Compare::eq, a, 1), ir.copysign(like(w, kInfinity), w), result);
  Value* outside = ir.bit_or(is(ir, Compare::gt, a, 1), ir.is_nan(w));
  return narrow(ir, ir.select(outside, like(w, kNan), result));
}

Value* pow_f32(Ir& ir, Value* x, Value* y) {
  Value* a = widen(ir, x);
  Value* b = widen(ir, y);
  Value* base = ir.fabs(a);
  Value* magnitude = exp_wide(ir, ir.fmul(b, log_wide(ir, base)));
  Value* whole = ir.fcmp(Compare::eq, ir.floor(b), b);
  Value* half = ir.fmul(b, like(b, 0.5));
  Value* odd = ir.bit_and(whole, ir.fcmp(Compare::ne, ir.floor(half), half));
  Value* negative = ir.icmp(Compare::lt, bits(ir, a), Ir::zero(ir.as_integer(Ir::type_of(a))));
  Value* result = ir.select(ir.bit_and(negative, odd), ir.fneg(magnitude), magnitude);
  // A root of a negative number.
  Value* root = ir.bit_and(is(ir, Compare::lt, a, 0), ir.bit_not(whole));
  root = ir.bit_and(root, is(ir, Compare::gt, a, -kInfinity));
  result = ir.select(root, like(a, kNan), result);
  // 1^y and x^0 are 1 even of NaN; (-1)^(+-infinity) is 1.
  Value* endless = is(ir, Compare::eq, ir.fabs(b), kInfinity);
  Value* one = ir.bit_or(is(ir, Compare::eq, a, 1), is(ir, Compare::eq, b, 0));
  one = ir.bit_or(one, ir.bit_and(is(ir, Compare::eq, a, -1), endless));
  return narrow(ir, ir.select(one, like(a, 1), result));
}

Value* atan2_f32(Ir& ir, Value* y, Value* x) {
  Value* p = widen(ir, y);
  Value* q = widen(ir, x);
  Value* a = ir.fabs(p);
  Value* b = ir.fabs(q);
  Value* steep = ir.fcmp(Compare::gt, a, b);
  Value* low = ir.select(steep, b, a);
  Value* high = ir.select(steep, a, b);
  Value* ratio = ir.fdiv(low, high);
  ratio = ir.select(is(ir, Compare::eq, high, 0), like(p, 0), ratio);
  ratio = ir.select(is(ir, Compare::eq, low, kInfinity), like(p, 1), ratio);
  Value* r = atan_kernel(ir, ratio);
  r = ir.select(steep, ir.fsub(like(p, kPi / 2), r), r);
  Value* left = ir.icmp(Compare::lt, bits(ir, q), Ir::zero(ir.as_integer(Ir::type_of(q))));
  r = ir.copysign(ir.select(left, ir.fsub(like(p, kPi), r), r), p);
  Value* unordered = ir.fcmp(Compare::unordered, p, q);
  return narrow(ir, ir.select(unordered, ir.fadd(p, q), r));
}

Value* hypot_f32(Ir& ir, Value* x, Value* y) {
  Value* a = ir.fabs(widen(ir, x));
  Value* b = ir.fabs(widen(ir, y));
  Value* root = ir.sqrt(ir.fma(a, a, ir.fmul(b, b)));
  Value* infinite = ir.bit_or(is(ir, Compare::eq, a, kInfinity), is(ir, Compare::eq, b, kInfinity));
  return narrow(ir, ir.select(infinite, like(a, kInfinity), root));
}

}  // namespace inkle::codegen::cpu
