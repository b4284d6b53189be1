// The frequent functions, most of them in f32 arithmetic. What is left of a sum after rounding it
// is kept where it counts, so that nearly all of each error is that of the last rounding. The
// bounds are in docs/codegen_cpu.md, which math_test.cpp checks.
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "codegen/cpu/math.h"
#include "codegen/cpu/math_coefficients.h"
#include "codegen/cpu/math_parts.h"

namespace inkle::codegen::cpu {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kLog2e = 1.44269504088896340736;
// log(2) as the nearest f32 and the rest.
constexpr double kLn2 = 0.693147182464599609375;
constexpr double kLn2Rest = -1.904654299957767878e-9;
// log(2) in two parts, the first with zeros below so that its multiples by exponents are exact.
constexpr double kLn2High = 0.693145751953125;
constexpr double kLn2Low = 1.42860682030941723212e-6;
// Exponentials are 2^n (1 + e) with e in [-1/4, 1/2], where an ulp of e is at most a quarter of one
// of 1 + e. So n changes this much above half way: log2(3/2) - 1/2.
constexpr double kBelow = 0.0849625007211561815;

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

Value* to_word(Ir& ir, Value* n) { return ir.fp_to_signed(n, ir.as_integer(Ir::type_of(n))); }

// 2^n for n within the exponents of normals.
Value* power(Ir& ir, Value* n) {
  if (Value* scaled = ir.scale_by_power(like(n, 1), n)) return scaled;
  return power_of_two(ir, to_word(ir, n), Ir::type_of(n));
}

// x = n log(2) + r + c: r is exact, the square of c does not count.
struct Split {
  Value* n;
  Value* r;
  Value* c;
};
Split split(Ir& ir, Value* x) {
  Value* n = ir.round_even(ir.fma(x, like(x, kLog2e), like(x, -kBelow)));
  Value* r = ir.fma(n, like(x, -kLn2), x);
  return {n, r, ir.fmul(n, like(x, -kLn2Rest))};
}

// exp(r + c) - 1 - r, the largest part of it last: (r / 2 + c) r + near^3 P(near) + c.
Value* rest_of_exp(Ir& ir, const Split& s) {
  Value* near = ir.fadd(s.r, s.c);
  Value* cubic = ir.fmul(near, polynomial(ir, near, kExpm1));
  Value* rest = ir.fma(ir.fmul(near, near), cubic, s.c);
  return ir.fma(ir.fma(s.r, like(near, 0.5), s.c), s.r, rest);
}

}  // namespace

namespace {

// 2^n = 2^floor(n) (high + low) for n a multiple of 1 / lanes, from tables of 2^(i / lanes).
struct Power {
  Value* n;
  Value* high;
  Value* low;
};
// n next to x factor; high is null where the machine has no such tables.
Power power_near(Ir& ir, Value* x, double factor) {
  const int lanes = Ir::lanes_of(x);
  if (lanes != 8 && lanes != 16) return {};
  std::vector<double> high, low;
  for (int i = 0; i < lanes; ++i) {
    const double exact = std::exp2(static_cast<double>(i) / lanes);
    high.push_back(static_cast<float>(exact));
    low.push_back(exact - high.back());
  }
  // n lanes is in the low bits of the sum.
  const double magic = std::ldexp(1.5, 23) / lanes;
  Value* shifted = ir.fma(x, like(x, factor), like(x, magic));
  Value* i = bits(ir, shifted);
  return {ir.fsub(shifted, like(x, magic)), ir.look_up(high, i), ir.look_up(low, i)};
}

// 2^floor(n) (high + rest) in f64, rounded once.
Value* scale_by_f64(Ir& ir, const Power& power, Value* rest) {
  Type* type = Ir::type_of(rest);
  Type* wide = ir.f64(Ir::lanes_of(rest));
  Value* n = ir.sext(to_word(ir, ir.floor(power.n)), ir.as_integer(wide));
  Value* sum = ir.fadd(ir.fp_extend(power.high, wide), ir.fp_extend(rest, wide));
  return ir.fp_truncate(ir.fmul(sum, power_of_two(ir, n, wide)), type);
}

// 2^floor(n) (high + low) (1 + e), -152 < n < 129. `subnormal` lanes need care: there the sum must
// not be rounded before it is scaled.
Value* scale(Ir& ir, const Power& power, Value* e, Value* subnormal) {
  Value* rest = ir.fma(power.high, e, power.low);
  const auto fast = [&] {
    Value* sum = ir.fadd(power.high, rest);
    if (Value* scaled = ir.scale_by_power(sum, power.n)) return scaled;
    Type* type = Ir::type_of(e);
    Value* word = to_word(ir, ir.floor(power.n));
    Value* half = ir.ashr(word, 1);
    Value* other = ir.sub(word, half);
    return ir.fmul(ir.fmul(sum, power_of_two(ir, half, type)), power_of_two(ir, other, type));
  };
  if (subnormal == nullptr) return fast();
  return ir.branch(
      ir.any(subnormal), false, [&] { return Values{scale_by_f64(ir, power, rest)}; },
      [&] { return Values{fast()}; })[0];
}

Value* is_between(Ir& ir, Value* x, double low, double high) {
  return ir.bit_and(ir.fcmp(Compare::gt, x, like(x, low)), ir.fcmp(Compare::lt, x, like(x, high)));
}

// exp of x within [-104.5, 89]; null where there are no tables.
Value* exp_by_table(Ir& ir, Value* x, bool careful) {
  const Power power = power_near(ir, x, kLog2e);
  if (power.high == nullptr) return nullptr;
  Value* r = ir.fma(power.n, like(x, -kLn2Rest), ir.fma(power.n, like(x, -kLn2), x));
  Value* q = Ir::lanes_of(x) == 16 ? polynomial(ir, r, kExp16) : polynomial(ir, r, kExp8);
  Value* e = ir.fma(ir.fmul(r, r), q, r);
  return scale(ir, power, e, careful ? is_between(ir, x, -104, -87.3365) : nullptr);
}

}  // namespace

// Beyond the limits the result is 0 or infinity already.
Value* exp_f32(Ir& ir, Value* x) {
  Value* within = clamp(ir, x, -104.5, 89);
  if (Value* result = exp_by_table(ir, within, true)) return result;
  return exp_by_f64(ir, within, 1);
}

Value* exp_of_small(Ir& ir, Value* x) {
  Value* within = ir.fmax_second(like(x, -104.5), x);
  if (Value* result = exp_by_table(ir, within, false)) return result;
  return exp_by_f64(ir, within, 1);
}

Value* exp2_f32(Ir& ir, Value* x) {
  Value* safe = clamp(ir, x, -151, 128.5);
  if (const Power power = power_near(ir, safe, 1); power.high != nullptr) {
    Value* f = ir.fsub(safe, power.n);
    Value* slope =
        Ir::lanes_of(x) == 16 ? polynomial(ir, f, kExp2Of16) : polynomial(ir, f, kExp2Of8);
    return scale(ir, power, ir.fmul(slope, f), is_between(ir, safe, -150.5, -126));
  }
  return exp_by_f64(ir, safe, std::numbers::ln2);
}

namespace {

// a + b - sum, where sum is a + b rounded: Knuth's TwoSum.
Value* lost_by_sum(Ir& ir, Value* a, Value* b, Value* sum) {
  Value* other = ir.fsub(sum, a);
  return ir.fadd(ir.fsub(a, ir.fsub(sum, other)), ir.fsub(b, other));
}

}  // namespace

Value* expm1_f32(Ir& ir, Value* x) {
  // exp(x) = 2^n (1 + r + rest).
  const Split s = split(ir, clamp(ir, x, -25, 89));
  Value* rest = rest_of_exp(ir, s);
  // 2^n (1 + r + rest) - 1 of halves, so that 2^128 does not overflow.
  Value* half = power(ir, ir.fsub(s.n, like(x, 1)));
  Value* offset = ir.fsub(half, like(x, 0.5));
  Value* high = ir.fma(half, s.r, offset);
  Value* low = ir.fma(half, s.r, ir.fsub(offset, high));
  low = ir.fadd(low, lost_by_sum(ir, half, like(x, -0.5), offset));
  Value* sum = ir.fadd(high, ir.fma(half, rest, low));
  // Halves of subnormal numbers are not exact, and zero has a sign.
  return ir.select(ir.fcmp(Compare::lt, ir.fabs(x), like(x, 0x1p-30)), x, ir.fadd(sum, sum));
}

namespace {

// exponent * log(2) + log(1 + f + rest), without a rest where it is null.
Value* log_kernel(Ir& ir, Value* f, Value* rest, Value* exponent) {
  Value* whole = ir.fmul(exponent, like(f, kLn2High));
  Value* high = ir.fadd(whole, f);
  Value* low = ir.fma(exponent, like(f, kLn2Low), ir.fadd(ir.fsub(whole, high), f));
  if (rest != nullptr) low = ir.fadd(low, ir.fma(ir.fneg(f), rest, rest));
  // f^3 P(f) - f^2 / 2, the larger part last.
  low = ir.fma(ir.fmul(f, f), ir.fmul(f, polynomial(ir, f, kLog)), low);
  low = ir.fma(ir.fmul(f, like(f, -0.5)), f, low);
  return ir.fadd(high, low);
}

// The exponent e of x = 2^e m with m in [sqrt(1/2), sqrt(2)), as bits of the exponent field.
Value* exponent_bits(Ir& ir, Value* x) {
  Value* offset = ir.sub(bits(ir, x), word_like(ir, x, 0x3f3504f3));
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
  return log_special(ir, log_kernel(ir, ir.fsub(m, like(x, 1)), nullptr, exponent), x, 0);
}

Value* log1p_f32(Ir& ir, Value* x) {
  // 1 + x = 2^e (1 + f + rest): f is x itself where e is 0. Beyond 2^100, where 2^-e may leave the
  // range, 1 + x is x.
  Value* sum = ir.fadd(x, like(x, 1));
  Value* e = exponent_bits(ir, sum);
  Value* factor = ir.bitcast(ir.sub(word_like(ir, x, 0x3f800000), e), Ir::type_of(x));
  Value* offset = ir.fsub(factor, like(x, 1));
  Value* f = ir.fma(x, factor, offset);
  Value* rest = ir.fma(x, factor, ir.fsub(offset, f));
  Value* m = ir.bitcast(ir.sub(bits(ir, sum), e), Ir::type_of(x));
  Value* large = ir.fcmp(Compare::gt, x, like(x, 0x1p100));
  f = ir.select(large, ir.fsub(m, like(x, 1)), f);
  rest = ir.select(large, like(x, 0), rest);
  Value* exponent = ir.signed_to_fp(ir.ashr(e, 23), Ir::type_of(x));
  Value* result = log_special(ir, log_kernel(ir, f, rest, exponent), x, -1);
  return ir.select(ir.fcmp(Compare::eq, x, like(x, 0)), x, result);
}

namespace {

// tanh(a) = 1 - 2 / (exp(2 a) + 1) for a >= 0.6, 1 from 9.02 on.
Value* tanh_large(Ir& ir, Value* a) {
  Value* twice = ir.fmin_second(like(a, 20), ir.fadd(a, a));
  // exp(2 a) = 2^n (1 + e). What the split leaves, n 2e-9, does not count against 2^n.
  const Split s = split(ir, twice);
  Value* e = ir.fma(ir.fmul(s.r, s.r), polynomial(ir, s.r, kExp), s.r);
  Value* unit = power(ir, s.n);
  // exp(2 a) + 1 = d + rest.
  Value* offset = ir.fadd(unit, like(a, 1));
  Value* d = ir.fma(e, unit, offset);
  Value* rest = ir.fma(e, unit, ir.fsub(offset, d));
  // 1 - result is exact, and 2 - (1 - result) (d + rest) says by how much it is off: 14 bits of the
  // reciprocal do.
  Value* reciprocal = ir.approximate_reciprocal(d);
  if (reciprocal == nullptr) reciprocal = ir.fdiv(like(a, 1), d);
  Value* result = ir.fma(reciprocal, like(a, -2), like(a, 1));
  Value* quotient = ir.fneg(ir.fsub(like(a, 1), result));
  Value* off = ir.fma(quotient, rest, ir.fma(quotient, d, like(a, 2)));
  return ir.fma(ir.fneg(off), reciprocal, result);
}

}  // namespace

Value* tanh_f32(Ir& ir, Value* x) {
  Value* a = ir.fabs(x);
  Value* square = ir.fmul(x, x);
  Value* small = ir.fma(ir.fmul(polynomial(ir, square, kTanh), square), a, a);
  Value* result = ir.select(ir.fcmp(Compare::lt, a, like(x, 0.63)), small, tanh_large(ir, a));
  return ir.copysign(result, x);
}

Value* erf_f32(Ir& ir, Value* x) {
  Value* a = ir.fabs(x);
  Value* square = ir.fmul(x, x);
  Value* small = ir.fma(polynomial(ir, square, kErfSmall), a, a);
  // 1 - erfc, which is 1 from 3.92 on.
  Value* q = polynomial(ir, ir.fmin_second(like(x, 4), a), kErfLarge);
  Value* large = ir.fsub(like(x, 1), exp_of_small(ir, ir.fneg(q)));
  return ir.copysign(ir.select(ir.fcmp(Compare::lt, a, like(x, 1)), small, large), x);
}

Value* unless_huge(Ir& ir, Value* x, std::string_view name, const std::function<Value*()>& fast) {
  Value* a = ir.fabs(x);
  Value* huge = ir.bit_and(ir.fcmp(Compare::ge, a, like(x, 0x1p40)),
                           ir.fcmp(Compare::ne, a, like(x, kInfinity)));
  return ir.branch(
      ir.any(huge), false,
      [&] {
        Value* const operands[] = {ir.fp_extend(x, ir.f64(Ir::lanes_of(x)))};
        return Values{ir.fp_truncate(call_lanes(ir, name, operands), Ir::type_of(x))};
      },
      [&] { return Values{fast()}; })[0];
}

namespace {

// In f64: sin(x) = +-sin(x - k pi), cos(x) = +-sin(x - (k + 1/2) pi) with |x| < 2^40.
Value* sine(Ir& ir, Value* x, bool cosine) {
  const int lanes = Ir::lanes_of(x);
  Value* w = ir.fp_extend(x, ir.f64(lanes));
  constexpr double kHigh = 3.14159265358979311600;
  constexpr double kLow = 1.22464679914735317723e-16;
  constexpr double kInverse = 0.31830988618379067154;
  constexpr double kMagic = 0x1.8p52;  // plus an integer below 2^51: that is in the low bits
  Value* shifted = cosine ? ir.fadd(ir.fma(w, like(w, kInverse), like(w, -0.5)), like(w, kMagic))
                          : ir.fma(w, like(w, kInverse), like(w, kMagic));
  Value* k = ir.fsub(shifted, like(w, kMagic));
  if (cosine) k = ir.fadd(k, like(w, 0.5));
  Value* r = ir.fma(k, like(w, -kLow), ir.fma(k, like(w, -kHigh), w));
  Value* square = ir.fmul(r, r);
  Value* s = ir.fma(ir.fmul(polynomial(ir, square, kWideSinHalf), square), r, r);
  Value* result = ir.fp_truncate(s, Ir::type_of(x));
  // An odd k turns the sign, for the cosine an even one.
  Value* word = ir.truncate(bits(ir, shifted), ir.integer_type(32, lanes));
  if (cosine) word = ir.bit_not(word);
  result = ir.bitcast(ir.bit_xor(bits(ir, result), ir.shl(word, 31)), Ir::type_of(x));
  if (cosine) return result;
  return ir.select(ir.fcmp(Compare::eq, x, like(x, 0)), x, result);
}

}  // namespace

Value* sin_f32(Ir& ir, Value* x) {
  return unless_huge(ir, x, "sin", [&] { return sine(ir, x, false); });
}
Value* cos_f32(Ir& ir, Value* x) {
  return unless_huge(ir, x, "cos", [&] { return sine(ir, x, true); });
}

}  // namespace inkle::codegen::cpu
