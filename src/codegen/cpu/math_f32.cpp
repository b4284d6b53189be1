// The frequent functions, most of them in f32 arithmetic. What is left of a sum after rounding it
// is kept where it counts, so that nearly all of each error is that of the last rounding. The
// bounds are in docs/codegen_cpu.md, which math_test.cpp checks.
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "codegen/cpu/ir_operations.h"
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

Value* like(Value* x, double c) { return real(type_of(x), c); }
Value* word_like(Value* x, std::int64_t c) { return integer(as_integer(type_of(x)), c); }
Value* bits(Ir& ir, Value* x) { return bitcast(ir, x, as_integer(type_of(x))); }

// x within [low, high]; a NaN stays.
Value* clamp(Ir& ir, Value* x, double low, double high) {
  return fmax_second(ir, like(x, low), fmin_second(ir, like(x, high), x));
}

}  // namespace

Value* polynomial(Ir& ir, Value* x, std::span<const double> c) {
  Value* sum = like(x, c.back());
  for (std::size_t i = c.size() - 1; i-- > 0;) sum = fma(ir, sum, x, like(x, c[i]));
  return sum;
}

Value* power_of_two(Ir& ir, Value* n, Type* to) {
  const bool wide = bits_of(to) == 64;
  Value* biased = add(ir, n, integer(type_of(n), wide ? 1023 : 127));
  return bitcast(ir, shl(ir, biased, wide ? 52 : 23), to);
}

namespace {

Value* to_word(Ir& ir, Value* n) { return fp_to_signed(ir, n, as_integer(type_of(n))); }

// 2^n for n within the exponents of normals.
Value* power(Ir& ir, Value* n) {
  if (Value* scaled = scale_by_power(ir, like(n, 1), n)) return scaled;
  return power_of_two(ir, to_word(ir, n), type_of(n));
}

// x = n log(2) + r, but for what log(2) loses as an f32.
struct Split {
  Value* n;
  Value* r;
};
Split split(Ir& ir, Value* x) {
  Value* n = round_even(ir, fma(ir, x, like(x, kLog2e), like(x, -kBelow)));
  return {n, fma(ir, n, like(x, -kLn2), x)};
}

// 2^n = 2^floor(n) (high + low) for n a multiple of 1 / parts, from tables of 2^(i / parts).
struct Power {
  Value* n;
  Value* high;
  Value* low;
};
// n next to x factor; high is null but for the vectors of AVX-512. A `relative` low is that of
// high (1 + low). 0 parts are as many as lanes.
Power power_near(Ir& ir, Value* x, double factor, int parts = 0, bool relative = false) {
  const int lanes = lanes_of(x);
  if (!ir.has_avx512() || (lanes != 8 && lanes != 16)) return {};
  if (parts == 0) parts = lanes;
  std::vector<double> high, low;
  for (int i = 0; i < lanes; ++i) {
    const double exact = std::exp2(static_cast<double>(i % parts) / parts);
    high.push_back(static_cast<float>(exact));
    low.push_back(relative ? exact / high.back() - 1 : exact - high.back());
  }
  // n parts is in the low bits of the sum.
  const double magic = std::ldexp(1.5, 23) / parts;
  Value* shifted = fma(ir, x, like(x, factor), like(x, magic));
  Value* i = bits(ir, shifted);
  return {fsub(ir, shifted, like(x, magic)), look_up(ir, high, i), look_up(ir, low, i)};
}

// 2^floor(n) (high + rest) in f64, rounded once.
Value* scale_by_f64(Ir& ir, const Power& power, Value* rest) {
  Type* type = type_of(rest);
  Type* wide = ir.f64(lanes_of(rest));
  Value* n = sext(ir, to_word(ir, floor(ir, power.n)), as_integer(wide));
  Value* sum = fadd(ir, fp_extend(ir, power.high, wide), fp_extend(ir, rest, wide));
  return fp_truncate(ir, fmul(ir, sum, power_of_two(ir, n, wide)), type);
}

// 2^floor(n) (high + low) (1 + e), -152 < n < 129, by the instruction of AVX-512. `subnormal` lanes
// need care: there the sum must not be rounded before it is scaled. Lanes outside of `nonzero`
// underflow to 0, for which Intel's processors take a hundred cycles and more, unless they are
// masked out. Without `subnormal` no lane needs care.
Value* scale(Ir& ir, const Power& power, Value* e, Value* nonzero, Value* subnormal) {
  Value* rest = fma(ir, power.high, e, power.low);
  const auto fast = [&] {
    return scale_by_power(ir, fadd(ir, power.high, rest), power.n, nonzero);
  };
  if (subnormal == nullptr) return fast();
  return ir.branch(
      any(ir, subnormal), false, [&] { return Values{scale_by_f64(ir, power, rest)}; },
      [&] { return Values{fast()}; })[0];
}

Value* is_between(Ir& ir, Value* x, double low, double high) {
  return bit_and(ir, fcmp(ir, Compare::gt, x, like(x, low)),
                 fcmp(ir, Compare::lt, x, like(x, high)));
}

// Of NaNs, too.
Value* not_below(Ir& ir, Value* x, double low) {
  return bit_not(ir, fcmp(ir, Compare::lt, x, like(x, low)));
}

// exp of x within [-104.5, 89]; null where there are no tables.
Value* exp_by_table(Ir& ir, Value* x, bool careful) {
  const Power power = power_near(ir, x, kLog2e);
  if (power.high == nullptr) return nullptr;
  Value* r = fma(ir, power.n, like(x, -kLn2Rest), fma(ir, power.n, like(x, -kLn2), x));
  Value* q = lanes_of(x) == 16 ? polynomial(ir, r, kExp16) : polynomial(ir, r, kExp8);
  Value* e = fma(ir, fmul(ir, r, r), q, r);
  Value* nonzero = not_below(ir, x, -104);
  return scale(ir, power, e, nonzero, careful ? is_between(ir, x, -104, -87.3365) : nullptr);
}

// Vectors of AVX2 scale by adding to the exponent: `scaled` (1 + low) = 2^(n + shift), for n next
// to x factor, a multiple of 1/8, and n + shift within the exponents of normals.
struct ScaledPower {
  Value* n;
  Value* scaled;
  Value* low;
};
bool has_scaled_power(Ir& ir, Value* x) { return !ir.has_avx512() && lanes_of(x) == 8; }
ScaledPower scaled_power(Ir& ir, Value* x, double factor, int shift) {
  std::vector<double> high, low;
  for (int i = 0; i < 8; ++i) {
    const double exact = std::exp2(i / 8.0);
    const auto near = static_cast<float>(exact);
    // 8 n is in the low bits of the sum. From bit 20 on its upper part adds to the exponent, and i
    // to what the table has less.
    const int word = std::bit_cast<int>(near) + shift * (1 << 23) - i * (1 << 20);
    high.push_back(std::bit_cast<float>(word));
    low.push_back(exact / near - 1);
  }
  Value* magic = like(x, std::ldexp(1.5, 20));
  Value* shifted = fma(ir, x, like(x, factor), magic);
  Value* i = bits(ir, shifted);
  Value* word = add(ir, bits(ir, look_up(ir, high, i)), shl(ir, i, 20));
  return {fsub(ir, shifted, magic), bitcast(ir, word, type_of(x)), look_up(ir, low, i)};
}

// 2^shift exp(x).
Value* scaled_exp(Ir& ir, Value* x, int shift) {
  const ScaledPower power = scaled_power(ir, x, kLog2e, shift);
  Value* r = fma(ir, power.n, like(x, -kLn2Rest), fma(ir, power.n, like(x, -kLn2), x));
  Value* e = fma(ir, fmul(ir, r, r), polynomial(ir, r, kExp8), fadd(ir, r, power.low));
  return fma(ir, power.scaled, e, power.scaled);
}

// 2^shift 2^x.
Value* scaled_exp2(Ir& ir, Value* x, int shift) {
  const ScaledPower power = scaled_power(ir, x, 1, shift);
  Value* f = fsub(ir, x, power.n);
  Value* e = fma(ir, polynomial(ir, f, kExp2Of8), f, power.low);
  return fma(ir, power.scaled, e, power.scaled);
}

// An exponential whose half is `half`, which holds where x is not below `normal`. Below `zero` it
// is 0, and between them it is exp(factor x) by f64.
Value* doubled(Ir& ir, Value* x, Value* half, double zero, double normal, double factor) {
  Value* result = fadd(ir, half, half);
  const auto with_zeros = [&] {
    return Values{select(ir, fcmp(ir, Compare::lt, x, like(x, zero)), like(x, 0), result)};
  };
  const auto below = [&] {
    return ir.branch(
        any(ir, is_between(ir, x, zero, normal)), false,
        [&] { return Values{exp_by_f64(ir, fmax_second(ir, like(x, zero - 1), x), factor)}; },
        with_zeros);
  };
  return ir.branch(any(ir, fcmp(ir, Compare::lt, x, like(x, normal))), false, below,
                   [&] { return Values{result}; })[0];
}

}  // namespace

// Beyond the limits the result is 0 or infinity already.
Value* exp_f32(Ir& ir, Value* x) {
  if (has_scaled_power(ir, x)) {
    Value* within = fmin_second(ir, like(x, 89), x);
    return doubled(ir, within, scaled_exp(ir, within, -1), -104, -86.6, 1);
  }
  Value* within = clamp(ir, x, -104.5, 89);
  if (Value* result = exp_by_table(ir, within, true)) return result;
  return exp_by_f64(ir, within, 1);
}

Value* exp_of_small(Ir& ir, Value* x) {
  if (has_scaled_power(ir, x)) {
    // Of the least x, where n is -151, the bits of 2^(n + 24) are those of 0, so that nothing
    // underflows.
    Value* within = fmax_second(ir, like(x, -151 * std::numbers::ln2), x);
    return fmul(ir, scaled_exp(ir, within, 24), like(x, 0x1p-24));
  }
  Value* within = fmax_second(ir, like(x, -104.5), x);
  if (Value* result = exp_by_table(ir, within, false)) return result;
  return exp_by_f64(ir, within, 1);
}

Value* exp2_f32(Ir& ir, Value* x) {
  if (has_scaled_power(ir, x)) {
    Value* within = fmin_second(ir, like(x, 128.5), x);
    return doubled(ir, within, scaled_exp2(ir, within, -1), -150.5, -125, std::numbers::ln2);
  }
  Value* safe = clamp(ir, x, -151, 128.5);
  if (const Power power = power_near(ir, safe, 1); power.high != nullptr) {
    Value* f = fsub(ir, safe, power.n);
    Value* slope = lanes_of(x) == 16 ? polynomial(ir, f, kExp2Of16) : polynomial(ir, f, kExp2Of8);
    return scale(ir, power, fmul(ir, slope, f), not_below(ir, safe, -150.5),
                 is_between(ir, safe, -150.5, -126));
  }
  return exp_by_f64(ir, safe, std::numbers::ln2);
}

namespace {

// exp(x) = power (1 + r + rest) for -25 <= x <= 16, with r exact and rest far below it. From
// tables: power is null where there are none.
struct Exponential {
  Value* power;
  Value* r;
  Value* rest;
};
Exponential exponential(Ir& ir, Value* x) {
  Value *n, *power, *low;
  if (has_scaled_power(ir, x)) {
    const ScaledPower scaled = scaled_power(ir, x, kLog2e, 0);
    n = scaled.n, power = scaled.scaled, low = scaled.low;
  } else {
    const Power parts = power_near(ir, x, kLog2e, 8, true);
    if (parts.high == nullptr) return {};
    n = parts.n, power = scale_by_power(ir, parts.high, n), low = parts.low;
  }
  Value* r = fma(ir, n, like(x, -kLn2), x);
  low = fma(ir, n, like(x, -kLn2Rest), low);
  return {power, r, fma(ir, fmul(ir, r, r), polynomial(ir, r, kExp8), low)};
}

}  // namespace

Value* with_sign_of_zero(Ir& ir, Value* result, Value* x) {
  Value* sign = bit_and(ir, bits(ir, x), word_like(x, std::numeric_limits<std::int32_t>::min()));
  return bitcast(ir, bit_or(ir, bits(ir, result), sign), type_of(x));
}

Value* expm1_f32(Ir& ir, Value* x) {
  const auto [power, r, rest] = exponential(ir, fmax_second(ir, like(x, -25), x));
  if (power == nullptr) return expm1_by_f64(ir, x);
  const auto by_table = [&, power = power, r = r, rest = rest] {
    // Up to 2^24 power - 1 loses bits only where it is below -1/2, and adding 1 to it is exact. All
    // but `high` is negated, so that zeros keep the sign of x.
    Value* offset = fsub(ir, like(x, 1), power);
    Value* high = fma(ir, power, r, fneg(ir, offset));
    Value* low = fsub(ir, fsub(ir, like(x, 1), offset), power);
    low = fadd(ir, low, fma(ir, fneg(ir, power), r, fadd(ir, offset, high)));
    return Values{fsub(ir, high, fma(ir, fneg(ir, power), rest, low))};
  };
  return ir.branch(
      any(ir, fcmp(ir, Compare::gt, x, like(x, 16))), false,
      [&] { return Values{expm1_by_f64(ir, x)}; }, by_table)[0];
}

namespace {

// exponent * log(2) + log(1 + f + rest), without a rest where it is null.
Value* log_kernel(Ir& ir, Value* f, Value* rest, Value* exponent) {
  Value* whole = fmul(ir, exponent, like(f, kLn2High));
  Value* high = fadd(ir, whole, f);
  Value* low = fma(ir, exponent, like(f, kLn2Low), fadd(ir, fsub(ir, whole, high), f));
  if (rest != nullptr) low = fadd(ir, low, fma(ir, fneg(ir, f), rest, rest));
  // f^3 P(f) - f^2 / 2, the larger part last.
  low = fma(ir, fmul(ir, f, f), fmul(ir, f, polynomial(ir, f, kLog)), low);
  low = fma(ir, fmul(ir, f, like(f, -0.5)), f, low);
  return fadd(ir, high, low);
}

// The exponent e of x = 2^e m with m in [sqrt(1/2), sqrt(2)), as bits of the exponent field.
Value* exponent_bits(Ir& ir, Value* x) {
  Value* offset = sub(ir, bits(ir, x), word_like(x, 0x3f3504f3));
  return bit_and(ir, offset, word_like(x, -0x800000));
}

Value* log_special(Ir& ir, Value* result, Value* x, double zero) {
  Value* infinite = fcmp(ir, Compare::eq, x, like(x, kInfinity));
  result = select(ir, infinite, like(x, kInfinity), result);
  result = select(ir, fcmp(ir, Compare::lt, x, like(x, zero)), like(x, kNan), result);
  result = select(ir, fcmp(ir, Compare::eq, x, like(x, zero)), like(x, -kInfinity), result);
  return select(ir, is_nan(ir, x), x, result);
}

}  // namespace

Value* log_f32(Ir& ir, Value* x) {
  const auto log_normal = [&](Value* normal, Value* subnormal) {
    Value* e = exponent_bits(ir, normal);
    Value* m = bitcast(ir, sub(ir, bits(ir, normal), e), type_of(x));
    Value* exponent = signed_to_fp(ir, ashr(ir, e, 23), type_of(x));
    if (subnormal != nullptr) {
      exponent = select(ir, subnormal, fsub(ir, exponent, like(x, 23)), exponent);
    }
    return log_kernel(ir, fsub(ir, m, like(x, 1)), nullptr, exponent);
  };
  const auto any_number = [&] {
    Value* subnormal = fcmp(ir, Compare::lt, x, like(x, 0x1p-126));
    Value* normal = select(ir, subnormal, fmul(ir, x, like(x, 0x1p23)), x);
    return Values{log_special(ir, log_normal(normal, subnormal), x, 0)};
  };
  // Bits of the normal numbers above 0 begin at 2^23 and end before 255 2^23, unsigned.
  Value* offset = add(ir, bits(ir, x), word_like(x, 0x7f800000));
  Value* special = icmp(ir, Compare::gt, offset, word_like(x, -0x1000001));
  return ir.branch(any(ir, special), false, any_number,
                   [&] { return Values{log_normal(x, nullptr)}; })[0];
}

namespace {

// Beyond 2^100, where 2^-e may leave the range, 1 + x is x; without `special` no x is there, nor
// at -1 and below.
Value* log1p_of(Ir& ir, Value* x, bool special) {
  // 1 + x = 2^e (1 + f + rest): f is x itself where e is 0.
  Value* sum = fadd(ir, x, like(x, 1));
  Value* e = exponent_bits(ir, sum);
  Value* factor = bitcast(ir, sub(ir, word_like(x, 0x3f800000), e), type_of(x));
  Value* offset = fsub(ir, factor, like(x, 1));
  Value* f = fma(ir, x, factor, offset);
  Value* rest = fma(ir, x, factor, fsub(ir, offset, f));
  if (special) {
    Value* m = bitcast(ir, sub(ir, bits(ir, sum), e), type_of(x));
    Value* large = fcmp(ir, Compare::gt, x, like(x, 0x1p100));
    f = select(ir, large, fsub(ir, m, like(x, 1)), f);
    rest = select(ir, large, like(x, 0), rest);
  }
  Value* exponent = signed_to_fp(ir, ashr(ir, e, 23), type_of(x));
  Value* result = log_kernel(ir, f, rest, exponent);
  if (special) result = log_special(ir, result, x, -1);
  return select(ir, fcmp(ir, Compare::eq, x, like(x, 0)), x, result);
}

}  // namespace

Value* log1p_f32(Ir& ir, Value* x) {
  return ir.branch(
      any(ir, bit_not(ir, is_between(ir, x, -1, 0x1p100))), false,
      [&] { return Values{log1p_of(ir, x, true)}; },
      [&] { return Values{log1p_of(ir, x, false)}; })[0];
}

namespace {

// tanh(a) = 1 - 2 / (exp(2 a) + 1) for a >= 0.6, 1 from 9.02 on.
Value* tanh_large(Ir& ir, Value* a) {
  Value* twice = fmin_second(ir, like(a, 20), fadd(ir, a, a));
  // exp(2 a) = 2^n (1 + e). What the split leaves, n 2e-9, does not count against 2^n.
  const Split s = split(ir, twice);
  Value* e = fma(ir, fmul(ir, s.r, s.r), polynomial(ir, s.r, kExp), s.r);
  Value* unit = power(ir, s.n);
  // exp(2 a) + 1 = d + rest.
  Value* offset = fadd(ir, unit, like(a, 1));
  Value* d = fma(ir, e, unit, offset);
  Value* rest = fma(ir, e, unit, fsub(ir, offset, d));
  // 1 - result is exact, and 2 - (1 - result) (d + rest) says by how much it is off: 14 bits of the
  // reciprocal do.
  Value* reciprocal = approximate_reciprocal(ir, d);
  if (reciprocal == nullptr) reciprocal = fdiv(ir, like(a, 1), d);
  Value* result = fma(ir, reciprocal, like(a, -2), like(a, 1));
  Value* quotient = fneg(ir, fsub(ir, like(a, 1), result));
  Value* off = fma(ir, quotient, rest, fma(ir, quotient, d, like(a, 2)));
  return fma(ir, fneg(ir, off), reciprocal, result);
}

}  // namespace

Value* tanh_f32(Ir& ir, Value* x) {
  Value* a = fabs(ir, x);
  Value* square = fmul(ir, x, x);
  Value* small = fma(ir, fmul(ir, polynomial(ir, square, kTanh), square), a, a);
  Value* result = select(ir, fcmp(ir, Compare::lt, a, like(x, 0.63)), small, tanh_large(ir, a));
  return copysign(ir, result, x);
}

Value* erf_f32(Ir& ir, Value* x) {
  Value* a = fabs(ir, x);
  Value* square = fmul(ir, x, x);
  Value* small = fma(ir, polynomial(ir, square, kErfSmall), a, a);
  // 1 - erfc, which is 1 from 3.92 on.
  Value* q = polynomial(ir, fmin_second(ir, like(x, 4), a), kErfLarge);
  Value* large = fsub(ir, like(x, 1), exp_of_small(ir, fneg(ir, q)));
  return copysign(ir, select(ir, fcmp(ir, Compare::lt, a, like(x, 1)), small, large), x);
}

Value* unless_huge(Ir& ir, Value* x, std::string_view name, const std::function<Value*()>& fast) {
  Value* a = fabs(ir, x);
  Value* huge = bit_and(ir, fcmp(ir, Compare::ge, a, like(x, 0x1p40)),
                        fcmp(ir, Compare::ne, a, like(x, kInfinity)));
  return ir.branch(
      any(ir, huge), false,
      [&] {
        Value* const operands[] = {fp_extend(ir, x, ir.f64(lanes_of(x)))};
        return Values{fp_truncate(ir, call_lanes(ir, name, operands), type_of(x))};
      },
      [&] { return Values{fast()}; })[0];
}

namespace {

// In f64: sin(x) = +-sin(x - k pi), cos(x) = +-sin(x - (k + 1/2) pi) with |x| < 2^40.
Value* sine(Ir& ir, Value* x, bool cosine) {
  const int lanes = lanes_of(x);
  Value* w = fp_extend(ir, x, ir.f64(lanes));
  constexpr double kHigh = 3.14159265358979311600;
  constexpr double kLow = 1.22464679914735317723e-16;
  constexpr double kInverse = 0.31830988618379067154;
  constexpr double kMagic = 0x1.8p52;  // plus an integer below 2^51: that is in the low bits
  Value* shifted = cosine ? fadd(ir, fma(ir, w, like(w, kInverse), like(w, -0.5)), like(w, kMagic))
                          : fma(ir, w, like(w, kInverse), like(w, kMagic));
  Value* k = fsub(ir, shifted, like(w, kMagic));
  if (cosine) k = fadd(ir, k, like(w, 0.5));
  Value* r = fma(ir, k, like(w, -kLow), fma(ir, k, like(w, -kHigh), w));
  Value* square = fmul(ir, r, r);
  Value* s = fma(ir, fmul(ir, polynomial(ir, square, kWideSinHalf), square), r, r);
  Value* result = fp_truncate(ir, s, type_of(x));
  // An odd k turns the sign, for the cosine an even one.
  Value* word = truncate(ir, bits(ir, shifted), ir.integer_type(32, lanes));
  if (cosine) word = bit_not(ir, word);
  result = bitcast(ir, bit_xor(ir, bits(ir, result), shl(ir, word, 31)), type_of(x));
  if (cosine) return result;
  return select(ir, fcmp(ir, Compare::eq, x, like(x, 0)), x, result);
}

}  // namespace

Value* sin_f32(Ir& ir, Value* x) {
  return unless_huge(ir, x, "sin", [&] { return sine(ir, x, false); });
}
Value* cos_f32(Ir& ir, Value* x) {
  return unless_huge(ir, x, "cos", [&] { return sine(ir, x, true); });
}

}  // namespace inkle::codegen::cpu
