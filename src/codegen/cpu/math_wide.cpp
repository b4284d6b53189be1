// The rarer functions of f32 with f64 inside: relative errors of 1e-9 and less vanish in the last
// rounding, and neither cancellation nor range needs care.
#include <array>
#include <limits>

#include "codegen/cpu/ir_operations.h"
#include "codegen/cpu/math.h"
#include "codegen/cpu/math_coefficients.h"
#include "codegen/cpu/math_parts.h"

namespace inkle::codegen::cpu {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kPi = 3.14159265358979323846;
constexpr double kLn2 = 0.69314718055994530942;

Value* like(Value* x, double c) { return real(type_of(x), c); }
Value* bits(Ir& ir, Value* x) { return bitcast(ir, x, as_integer(type_of(x))); }
Value* is(Ir& ir, Compare c, Value* x, double v) { return fcmp(ir, c, x, like(x, v)); }
Value* widen(Ir& ir, Value* x) { return fp_extend(ir, x, ir.f64(lanes_of(x))); }
Value* narrow(Ir& ir, Value* w) { return fp_truncate(ir, w, ir.f32(lanes_of(w))); }

// The integer value of w, |w| < 2^51, as i64 lanes.
Value* to_integer(Ir& ir, Value* w) {
  constexpr double kMagic = 0x1.8p52;
  Value* shifted = bits(ir, fadd(ir, w, like(w, kMagic)));
  return sub(ir, shifted, bits(ir, like(w, kMagic)));
}

// exp(x) = power (1 + p) for |x| < 700; beyond, what f32 rounds to 0 or infinity.
struct WideExp {
  Value* power;
  Value* p;
};
WideExp exp_parts(Ir& ir, Value* x) {
  x = fmax_second(ir, like(x, -700), fmin_second(ir, like(x, 700), x));
  Value* n = round_even(ir, fmul(ir, x, like(x, 1 / kLn2)));
  Value* r = fma(ir, n, like(x, -kLn2), x);
  Value* p = fma(ir, fmul(ir, polynomial(ir, r, kWideExp), r), r, r);
  return {power_of_two(ir, to_integer(ir, n), type_of(x)), p};
}
Value* exp_wide(Ir& ir, Value* x) {
  const auto [power, p] = exp_parts(ir, x);
  return fma(ir, p, power, power);
}

// Exponent and logarithm of the significand of a positive normal x.
struct Logarithm {
  Value* exponent;
  Value* fraction;
};
Logarithm log_parts(Ir& ir, Value* x) {
  Value* word = bits(ir, x);
  Type* type = type_of(word);
  constexpr std::int64_t kSqrtHalf = 0x3fe6a09e667f3bcd;
  Value* e = ashr(ir, sub(ir, word, integer(type, kSqrtHalf)), 52);
  Value* m = bitcast(ir, sub(ir, word, shl(ir, e, 52)), type_of(x));
  Value* s = fdiv(ir, fsub(ir, m, like(x, 1)), fadd(ir, m, like(x, 1)));
  Value* square = fmul(ir, s, s);
  Value* tail = fmul(ir, fmul(ir, polynomial(ir, square, kWideLog), square), s);
  // The exponent fits 32 bits, whose conversion every machine has.
  Value* small = truncate(ir, e, ir.integer_type(32, lanes_of(x)));
  return {signed_to_fp(ir, small, type_of(x)), fadd(ir, fadd(ir, s, s), tail)};
}

Value* log_special(Ir& ir, Value* result, Value* x) {
  result = select(ir, is(ir, Compare::eq, x, kInfinity), x, result);
  result = select(ir, is(ir, Compare::lt, x, 0), like(x, kNan), result);
  result = select(ir, is(ir, Compare::eq, x, 0), like(x, -kInfinity), result);
  return select(ir, is_nan(ir, x), x, result);
}

Value* log_wide(Ir& ir, Value* x) {
  const Logarithm parts = log_parts(ir, x);
  return log_special(ir, fma(ir, parts.exponent, like(x, kLn2), parts.fraction), x);
}

Value* atan_kernel(Ir& ir, Value* x) {  // |x| <= 1
  Value* square = fmul(ir, x, x);
  return fma(ir, fmul(ir, polynomial(ir, square, kWideAtan), square), x, x);
}
Value* asin_kernel(Ir& ir, Value* x) {  // |x| <= 1/2
  Value* square = fmul(ir, x, x);
  return fma(ir, fmul(ir, polynomial(ir, square, kWideAsin), square), x, x);
}

// asin of 1/2 <= a <= 1 is pi/2 minus twice this; a beyond 1 gives NaN.
Value* asin_complement(Ir& ir, Value* a) {
  return asin_kernel(ir, sqrt(ir, fmul(ir, fsub(ir, like(a, 1), a), like(a, 0.5))));
}

// x - quadrant * pi/2, |x| < 2^40, and the quadrant (integer lanes of 32 bits, modulo 4 in its low
// bits).
struct Reduced {
  Value* remainder;
  Value* quadrant;
};
Reduced reduce_quadrant(Ir& ir, Value* x) {
  const int lanes = lanes_of(x);
  Type* wide = ir.f64(lanes);
  Value* w = fp_extend(ir, x, wide);
  constexpr double kHigh = 1.57079632679489655800;
  constexpr double kLow = 6.12323399573676603587e-17;
  Value* k = round_even(ir, fmul(ir, w, like(w, 0.63661977236758134308)));
  Value* r = fma(ir, k, like(w, -kHigh), w);
  r = fma(ir, k, like(w, -kLow), r);
  // The low bits of an integer below 2^51 after adding 1.5 * 2^52.
  Value* shifted = bits(ir, fadd(ir, k, like(w, 0x1.8p52)));
  return {r, truncate(ir, shifted, ir.integer_type(32, lanes))};
}

}  // namespace

Value* exp_by_f64(Ir& ir, Value* x, double factor) {
  Value* w = widen(ir, x);
  return narrow(ir, exp_wide(ir, fmul(ir, w, like(w, factor))));
}

Value* expm1_by_f64(Ir& ir, Value* x) {
  Value* w = widen(ir, x);
  const auto [power, p] = exp_parts(ir, w);
  Value* result = narrow(ir, fma(ir, p, power, fsub(ir, power, like(w, 1))));
  return with_sign_of_zero(ir, result, x);
}

Value* log2_f32(Ir& ir, Value* x) {
  Value* w = widen(ir, x);
  const Logarithm parts = log_parts(ir, w);
  Value* result = fma(ir, parts.fraction, like(w, 1 / kLn2), parts.exponent);
  return narrow(ir, log_special(ir, result, w));
}

Value* log10_f32(Ir& ir, Value* x) {
  return narrow(ir,
                fmul(ir, log_wide(ir, widen(ir, x)), like(widen(ir, x), 0.43429448190325182765)));
}

Value* tan_f32(Ir& ir, Value* x) {
  return unless_huge(ir, x, "tan", [&] {
    const Reduced reduced = reduce_quadrant(ir, x);
    Value* r = reduced.remainder;
    Value* square = fmul(ir, r, r);
    Value* s = fma(ir, fmul(ir, polynomial(ir, square, kWideSin), square), r, r);
    Value* tail = fma(ir, polynomial(ir, square, kWideCos), square, like(r, -0.5));
    Value* c = fma(ir, tail, square, like(r, 1));
    Type* word = type_of(reduced.quadrant);
    Value* odd = icmp(ir, Compare::ne, bit_and(ir, reduced.quadrant, integer(word, 1)), zero(word));
    Value* result = fdiv(ir, select(ir, odd, fneg(ir, c), s), select(ir, odd, s, c));
    return select(ir, is(ir, Compare::eq, x, 0), x, narrow(ir, result));
  });
}

Value* asin_f32(Ir& ir, Value* x) {
  Value* w = widen(ir, x);
  Value* a = fabs(ir, w);
  Value* large = fma(ir, asin_complement(ir, a), like(w, -2), like(w, kPi / 2));
  Value* result = select(ir, is(ir, Compare::le, a, 0.5), asin_kernel(ir, a), large);
  return narrow(ir, copysign(ir, result, w));
}

Value* acos_f32(Ir& ir, Value* x) {
  Value* w = widen(ir, x);
  Value* a = fabs(ir, w);
  Value* twice = fmul(ir, asin_complement(ir, a), like(w, 2));
  Value* large = select(ir, is(ir, Compare::lt, w, 0), fsub(ir, like(w, kPi), twice), twice);
  Value* small = fsub(ir, like(w, kPi / 2), asin_kernel(ir, w));
  return narrow(ir, select(ir, is(ir, Compare::le, a, 0.5), small, large));
}

Value* atan_f32(Ir& ir, Value* x) {
  Value* w = widen(ir, x);
  Value* a = fabs(ir, w);
  Value* inverted = is(ir, Compare::gt, a, 1);
  Value* r = atan_kernel(ir, select(ir, inverted, fdiv(ir, like(w, 1), a), a));
  r = select(ir, inverted, fsub(ir, like(w, kPi / 2), r), r);
  return narrow(ir, copysign(ir, r, w));
}

Value* sinh_f32(Ir& ir, Value* x) {
  constexpr std::array<double, 4> kSeries = {1.0 / 6, 1.0 / 120, 1.0 / 5040, 1.0 / 362880};
  Value* w = widen(ir, x);
  Value* square = fmul(ir, w, w);
  Value* small = fma(ir, fmul(ir, polynomial(ir, square, kSeries), square), w, w);
  Value* e = exp_wide(ir, w);
  Value* large = fmul(ir, fsub(ir, e, fdiv(ir, like(w, 1), e)), like(w, 0.5));
  return narrow(ir, select(ir, is(ir, Compare::lt, fabs(ir, w), 0.5), small, large));
}

Value* cosh_f32(Ir& ir, Value* x) {
  Value* e = exp_wide(ir, widen(ir, x));
  return narrow(ir, fmul(ir, fadd(ir, e, fdiv(ir, like(e, 1), e)), like(e, 0.5)));
}

Value* asinh_f32(Ir& ir, Value* x) {
  Value* w = widen(ir, x);
  Value* a = fabs(ir, w);
  Value* square = fmul(ir, a, a);
  Value* large = log_wide(ir, fadd(ir, a, sqrt(ir, fadd(ir, square, like(w, 1)))));
  Value* small = fma(ir, fmul(ir, square, like(w, -1.0 / 6)), a, a);
  return narrow(ir, copysign(ir, select(ir, is(ir, Compare::lt, a, 1e-4), small, large), w));
}

Value* acosh_f32(Ir& ir, Value* x) {
  Value* w = widen(ir, x);
  Value* root = sqrt(ir, fma(ir, w, w, like(w, -1)));
  Value* result = log_wide(ir, fadd(ir, w, root));
  return narrow(ir, select(ir, is(ir, Compare::lt, w, 1), like(w, kNan), result));
}

Value* atanh_f32(Ir& ir, Value* x) {
  Value* w = widen(ir, x);
  Value* one = like(w, 1);
  Value* quotient = fdiv(ir, fadd(ir, one, w), fsub(ir, one, w));
  Value* large = fmul(ir, log_wide(ir, quotient), like(w, 0.5));
  Value* small = fma(ir, fmul(ir, fmul(ir, w, w), like(w, 1.0 / 3)), w, w);
  return narrow(ir, select(ir, is(ir, Compare::lt, fabs(ir, w), 1e-4), small, large));
}

Value* erfc_f32(Ir& ir, Value* x) {
  Value* w = widen(ir, x);
  Value* a = fmin_second(ir, like(w, 10.5), fabs(ir, w));  // 0 in f32 from 10.06 on
  Value* t = fdiv(ir, like(w, 2), fadd(ir, a, like(w, 2)));
  Value* exponent = fma(ir, fneg(ir, a), a, polynomial(ir, t, kWideErfc));
  Value* right = fmul(ir, t, exp_wide(ir, exponent));
  return narrow(ir, select(ir, is(ir, Compare::lt, w, 0), fsub(ir, like(w, 2), right), right));
}

Value* erfinv_f32(Ir& ir, Value* x) {
  Value* w = widen(ir, x);
  Value* one = like(w, 1);
  Value* v = fneg(ir, log_wide(ir, fmul(ir, fsub(ir, one, w), fadd(ir, one, w))));
  Value* centre = polynomial(ir, fmin_second(ir, v, like(w, 5)), kWideErfinvCentre);
  Value* tail = polynomial(ir, fsub(ir, sqrt(ir, v), like(w, 3)), kWideErfinvTail);
  Value* result = fmul(ir, select(ir, is(ir, Compare::lt, v, 5), centre, tail), w);
  Value* a = fabs(ir, w);
  result = select(ir, is(ir, Compare::eq, a, 1), copysign(ir, like(w, kInfinity), w), result);
  Value* outside = bit_or(ir, is(ir, Compare::gt, a, 1), is_nan(ir, w));
  return narrow(ir, select(ir, outside, like(w, kNan), result));
}

Value* pow_f32(Ir& ir, Value* x, Value* y) {
  Value* a = widen(ir, x);
  Value* b = widen(ir, y);
  Value* base = fabs(ir, a);
  Value* magnitude = exp_wide(ir, fmul(ir, b, log_wide(ir, base)));
  Value* whole = fcmp(ir, Compare::eq, floor(ir, b), b);
  Value* half = fmul(ir, b, like(b, 0.5));
  Value* odd = bit_and(ir, whole, fcmp(ir, Compare::ne, floor(ir, half), half));
  Value* negative = icmp(ir, Compare::lt, bits(ir, a), zero(as_integer(type_of(a))));
  Value* result = select(ir, bit_and(ir, negative, odd), fneg(ir, magnitude), magnitude);
  // A root of a negative number.
  Value* root = bit_and(ir, is(ir, Compare::lt, a, 0), bit_not(ir, whole));
  root = bit_and(ir, root, is(ir, Compare::gt, a, -kInfinity));
  result = select(ir, root, like(a, kNan), result);
  // 1^y and x^0 are 1 even of NaN; (-1)^(+-infinity) is 1.
  Value* endless = is(ir, Compare::eq, fabs(ir, b), kInfinity);
  Value* one = bit_or(ir, is(ir, Compare::eq, a, 1), is(ir, Compare::eq, b, 0));
  one = bit_or(ir, one, bit_and(ir, is(ir, Compare::eq, a, -1), endless));
  return narrow(ir, select(ir, one, like(a, 1), result));
}

Value* atan2_f32(Ir& ir, Value* y, Value* x) {
  Value* p = widen(ir, y);
  Value* q = widen(ir, x);
  Value* a = fabs(ir, p);
  Value* b = fabs(ir, q);
  Value* steep = fcmp(ir, Compare::gt, a, b);
  Value* low = select(ir, steep, b, a);
  Value* high = select(ir, steep, a, b);
  Value* ratio = fdiv(ir, low, high);
  ratio = select(ir, is(ir, Compare::eq, high, 0), like(p, 0), ratio);
  ratio = select(ir, is(ir, Compare::eq, low, kInfinity), like(p, 1), ratio);
  Value* r = atan_kernel(ir, ratio);
  r = select(ir, steep, fsub(ir, like(p, kPi / 2), r), r);
  Value* left = icmp(ir, Compare::lt, bits(ir, q), zero(as_integer(type_of(q))));
  r = copysign(ir, select(ir, left, fsub(ir, like(p, kPi), r), r), p);
  Value* unordered = fcmp(ir, Compare::unordered, p, q);
  return narrow(ir, select(ir, unordered, fadd(ir, p, q), r));
}

Value* hypot_f32(Ir& ir, Value* x, Value* y) {
  Value* a = fabs(ir, widen(ir, x));
  Value* b = fabs(ir, widen(ir, y));
  Value* root = sqrt(ir, fma(ir, a, a, fmul(ir, b, b)));
  Value* infinite =
      bit_or(ir, is(ir, Compare::eq, a, kInfinity), is(ir, Compare::eq, b, kInfinity));
  return narrow(ir, select(ir, infinite, like(a, kInfinity), root));
}

}  // namespace inkle::codegen::cpu
