// Code of one instruction of a body whose operands are known.
#include "codegen/cpu/operation.h"

#include "base/error.h"
#include "codegen/cpu/ir_operations.h"
#include "codegen/cpu/math.h"

namespace inkle::codegen::cpu {

using loop::Opcode;

void Faults::check(Ir& ir, Value* bad, Value* active, schedule::KernelStatus status_code) {
  can_fail = true;
  if (active != nullptr && lanes_of(active) == lanes_of(bad)) bad = bit_and(ir, bad, active);
  ir.branch(
      any(ir, bad), false,
      [&] {
        store(ir, ir.i64(static_cast<std::int64_t>(status_code)), status, 8);
        return Values();
      },
      [] { return Values(); });
}

namespace {

// min and max propagate NaN: vminps gives its second operand when either is NaN.
Value* extremum(Ir& ir, bool minimum, DType dtype, Value* a, Value* b) {
  if (dtype == DType::boolean) return minimum ? bit_and(ir, a, b) : bit_or(ir, a, b);
  if (abi::is_float(dtype)) {
    Value* r = minimum ? fmin_second(ir, a, b) : fmax_second(ir, a, b);
    return select(ir, is_nan(ir, a), a, r);
  }
  if (dtype == DType::u8) {
    return select(ir, icmp(ir, minimum ? Compare::ult : Compare::ugt, a, b), a, b);
  }
  return minimum ? smin(ir, a, b) : smax(ir, a, b);
}

Value* compare(Ir& ir, Opcode opcode, DType dtype, Value* a, Value* b) {
  Compare c = Compare::eq;
  switch (opcode) {
    case Opcode::equal:
      c = Compare::eq;
      break;
    case Opcode::not_equal:
      c = Compare::ne;
      break;
    case Opcode::less:
      c = Compare::lt;
      break;
    case Opcode::less_equal:
      c = Compare::le;
      break;
    case Opcode::greater:
      c = Compare::gt;
      break;
    default:
      c = Compare::ge;
      break;
  }
  if (abi::is_float(dtype)) return fcmp(ir, c, a, b);
  if (dtype == DType::u8 || dtype == DType::boolean) {
    switch (c) {
      case Compare::lt:
        c = Compare::ult;
        break;
      case Compare::le:
        c = Compare::ule;
        break;
      case Compare::gt:
        c = Compare::ugt;
        break;
      case Compare::ge:
        c = Compare::uge;
        break;
      default:
        break;
    }
  }
  return icmp(ir, c, a, b);
}

// Quotient and remainder of C's rule. The hardware traps on a zero divisor and on min / -1, which
// are replaced; x86 has no vector division, but f64 holds all quotients of 32-bit integers
// exactly: |a / b| rounded cannot reach the next integer, as its distance is at least 1 / |b|,
// above the error 2^-53 * 2^31.
struct Division {
  Value* quotient;
  Value* remainder;
};

Division divide(Ir& ir, DType dtype, Value* a, Value* b, Value* active, Faults& faults) {
  Type* type = type_of(a);
  const int lanes = lanes_of(a);
  Value* zero_divisor = icmp(ir, Compare::eq, b, zero(type));
  std::int64_t constant = 0;
  Value* first = lanes == 1 ? b : extract(ir, b, 0);
  const bool is_constant =
      constant_integer(first, constant) && constant_integer(extract(ir, b, lanes - 1), constant);
  if (!is_constant || constant == 0) {
    faults.check(ir, zero_divisor, active, schedule::KernelStatus::division_by_zero);
    b = select(ir, zero_divisor, integer(type, 1), b);
  }
  if (dtype == DType::u8) {
    return {udiv(ir, a, b), urem(ir, a, b)};
  }
  if (is_constant && constant != 0 && constant != -1) {
    Value* q = sdiv(ir, a, b);
    return {q, sub(ir, a, mul(ir, q, b))};
  }
  if (dtype != DType::i64 && lanes > 1) {
    Type* real = ir.f64(lanes);
    Value* quotient = fdiv(ir, signed_to_fp(ir, a, real), signed_to_fp(ir, b, real));
    // Through i64: min / -1 is 2^31, which wraps.
    Value* q = truncate(ir, fp_to_signed(ir, quotient, ir.integer_type(64, lanes)), type);
    return {q, sub(ir, a, mul(ir, q, b))};
  }
  Value* minus_one = icmp(ir, Compare::eq, b, integer(type, -1));
  Value* safe = select(ir, minus_one, integer(type, 1), b);
  Value* q = sdiv(ir, a, safe);
  q = select(ir, minus_one, sub(ir, zero(type), a), q);
  return {q, sub(ir, a, mul(ir, q, b))};
}

Value* integer_division(Ir& ir, Opcode opcode, DType dtype, Value* a, Value* b, Value* active,
                        Faults& faults) {
  const Division d = divide(ir, dtype, a, b, active, faults);
  if (opcode == Opcode::div) return d.quotient;
  if (opcode == Opcode::fmod || (opcode == Opcode::remainder && dtype == DType::u8)) {
    return d.remainder;
  }
  if (dtype == DType::u8) return d.quotient;
  Type* type = type_of(a);
  Value* none = zero(type);
  Value* opposite = icmp(ir, Compare::lt, bit_xor(ir, d.remainder, b), none);
  Value* adjust = bit_and(ir, icmp(ir, Compare::ne, d.remainder, none), opposite);
  if (opcode == Opcode::floordiv) return sub(ir, d.quotient, zext(ir, adjust, type));
  return select(ir, adjust, add(ir, d.remainder, b), d.remainder);
}

// ATen's div_floor_floating and remainder.
Value* float_division(Ir& ir, Opcode opcode, Value* a, Value* b) {
  if (opcode == Opcode::div) return fdiv(ir, a, b);
  const bool wide = bits_of(type_of(a)) == 64;
  Value* const operands[] = {a, b};
  Value* modulus = call_lanes(ir, wide ? "fmod" : "fmodf", operands);
  if (opcode == Opcode::fmod) return modulus;
  Type* type = type_of(a);
  Value* none = zero(type);
  Value* opposite =
      bit_xor(ir, fcmp(ir, Compare::lt, b, none), fcmp(ir, Compare::lt, modulus, none));
  Value* adjust = bit_and(ir, fcmp(ir, Compare::ne, modulus, none), opposite);
  if (opcode == Opcode::remainder) return select(ir, adjust, fadd(ir, modulus, b), modulus);
  Value* quotient = fdiv(ir, fsub(ir, a, modulus), b);
  quotient = select(ir, adjust, fsub(ir, quotient, real(type, 1)), quotient);
  Value* down = floor(ir, quotient);
  Value* off = fcmp(ir, Compare::gt, fsub(ir, quotient, down), real(type, 0.5));
  down = select(ir, off, fadd(ir, down, real(type, 1)), down);
  Value* plain = fdiv(ir, a, b);
  Value* result =
      select(ir, fcmp(ir, Compare::ne, quotient, none), down, copysign(ir, none, plain));
  return select(ir, fcmp(ir, Compare::eq, b, none), plain, result);
}

Value* shift(Ir& ir, Opcode opcode, DType dtype, Value* a, Value* count) {
  Type* type = type_of(a);
  const int width = bits_of(type);
  Value* too_far = icmp(ir, Compare::uge, count, integer(type, width));
  Value* last = integer(type, width - 1);
  if (opcode == Opcode::shift_left || dtype == DType::u8) {
    Value* safe = select(ir, too_far, last, count);
    Value* r = opcode == Opcode::shift_left ? shl(ir, a, safe) : lshr(ir, a, safe);
    return select(ir, too_far, zero(type), r);
  }
  return ashr(ir, a, select(ir, too_far, last, count));
}

Value* absolute(Ir& ir, DType dtype, Value* a) {
  if (abi::is_float(dtype)) return fabs(ir, a);
  if (dtype == DType::u8 || dtype == DType::boolean) return a;
  return smax(ir, a, sub(ir, zero(type_of(a)), a));
}

Value* next_after(Ir& ir, Value* a, Value* b) {
  Value* const operands[] = {a, b};
  return call_lanes(ir, bits_of(type_of(a)) == 64 ? "nextafter" : "nextafterf", operands);
}

Value* sign_of(Ir& ir, Value* a) {
  Type* word = as_integer(type_of(a));
  return icmp(ir, Compare::lt, bitcast(ir, a, word), zero(word));
}

Value* random_word(Ir& ir, Value* seed, Value* offset) {
  const std::array<Value*, 4> words = philox(ir, seed, lshr(ir, offset, 2));
  Type* type = type_of(offset);
  const auto has = [&](int bit) {
    return icmp(ir, Compare::ne, bit_and(ir, offset, integer(type, bit)), zero(type));
  };
  Value* odd = has(1);
  return select(ir, has(2), select(ir, odd, words[3], words[2]),
                select(ir, odd, words[1], words[0]));
}

Value* emit_binary(Ir& ir, Opcode opcode, DType dtype, Value* a, Value* b) {
  const bool is_real = abi::is_float(dtype);
  switch (opcode) {
    case Opcode::add:
      if (dtype == DType::boolean) return bit_or(ir, a, b);
      return is_real ? fadd(ir, a, b) : add(ir, a, b);
    case Opcode::sub:
      if (dtype == DType::boolean) return bit_xor(ir, a, b);
      return is_real ? fsub(ir, a, b) : sub(ir, a, b);
    case Opcode::mul:
      if (dtype == DType::boolean) return bit_and(ir, a, b);
      return is_real ? fmul(ir, a, b) : mul(ir, a, b);
    case Opcode::min:
      return extremum(ir, true, dtype, a, b);
    case Opcode::max:
      return extremum(ir, false, dtype, a, b);
    case Opcode::bit_and:
      return bit_and(ir, a, b);
    case Opcode::bit_or:
      return bit_or(ir, a, b);
    case Opcode::bit_xor:
      return bit_xor(ir, a, b);
    default:
      break;
  }
  INKLE_CHECK(false, "{} is no binary operation", loop::name_of(opcode));
  return nullptr;
}

// One of the ten rounds of Philox-4x32: words of 32 bits in lanes of 64.
void philox_round(Ir& ir, std::span<Value*, 4> c, std::span<Value* const, 2> key) {
  Type* type = type_of(c[0]);
  Value* mask = integer(type, 0xffffffff);
  Value* p0 = mul(ir, c[0], integer(type, 0xD2511F53));
  Value* p1 = mul(ir, c[2], integer(type, 0xCD9E8D57));
  Value* next[4] = {bit_xor(ir, bit_xor(ir, lshr(ir, p1, 32), c[1]), key[0]), bit_and(ir, p1, mask),
                    bit_xor(ir, bit_xor(ir, lshr(ir, p0, 32), c[3]), key[1]),
                    bit_and(ir, p0, mask)};
  for (std::size_t i = 0; i < 4; ++i) c[i] = next[i];
}

}  // namespace

std::array<Value*, 4> philox(Ir& ir, Value* seed, Value* counter) {
  Type* type = type_of(seed);
  Value* mask = integer(type, 0xffffffff);
  Value* key[2] = {bit_and(ir, seed, mask), lshr(ir, seed, 32)};
  std::array<Value*, 4> c = {bit_and(ir, counter, mask), lshr(ir, counter, 32), zero(type),
                             zero(type)};
  for (int round = 0; round < 10; ++round) {
    if (round > 0) {
      key[0] = bit_and(ir, add(ir, key[0], integer(type, 0x9E3779B9)), mask);
      key[1] = bit_and(ir, add(ir, key[1], integer(type, 0xBB67AE85)), mask);
    }
    philox_round(ir, c, key);
  }
  return c;
}

// Transposes: interleaving halves log2(lanes) times moves element (i, j) to (j, i).
void transpose(Ir& ir, Values& square) {
  const std::size_t n = square.size();
  const auto lanes = static_cast<int>(n);
  INKLE_CHECK(lanes_of(square[0]) == lanes, "{} vectors of {} lanes to transpose", n,
              lanes_of(square[0]));
  std::vector<int> low;
  std::vector<int> high;
  for (int i = 0; i < lanes / 2; ++i) {
    low.insert(low.end(), {i, lanes + i});
    high.insert(high.end(), {lanes / 2 + i, lanes + lanes / 2 + i});
  }
  for (std::size_t done = 1; done < n; done *= 2) {
    Values next;
    for (std::size_t i = 0; i < n / 2; ++i) {
      next.push_back(shuffle(ir, square[i], square[i + n / 2], low));
      next.push_back(shuffle(ir, square[i], square[i + n / 2], high));
    }
    square = std::move(next);
  }
}

Value* emit_operation(Ir& ir, const loop::Instruction& instruction, DType operand,
                      std::span<Value* const> operands, Value* active, Faults& faults) {
  Value* a = operands.empty() ? nullptr : operands[0];
  Value* b = operands.size() > 1 ? operands[1] : nullptr;
  const bool is_real = abi::is_float(operand);
  const Opcode opcode = instruction.opcode;
  switch (opcode) {
    case Opcode::cast:
      return cast(ir, a, operand, instruction.dtype);
    case Opcode::bitcast:
      return bitcast(ir, a, register_type(ir, instruction.dtype, lanes_of(a)));
    case Opcode::select:
      return select(ir, a, b, operands[2]);
    case Opcode::add:
    case Opcode::sub:
    case Opcode::mul:
    case Opcode::min:
    case Opcode::max:
    case Opcode::bit_and:
    case Opcode::bit_or:
    case Opcode::bit_xor:
      return emit_binary(ir, opcode, operand, a, b);
    case Opcode::div:
    case Opcode::floordiv:
    case Opcode::remainder:
    case Opcode::fmod:
      return is_real ? float_division(ir, opcode, a, b)
                     : integer_division(ir, opcode, operand, a, b, active, faults);
    case Opcode::neg:
      return is_real ? fneg(ir, a) : sub(ir, zero(type_of(a)), a);
    case Opcode::abs:
      return absolute(ir, operand, a);
    case Opcode::fma:
      return fma(ir, a, b, operands[2]);
    case Opcode::bit_not:
      return bit_not(ir, a);
    case Opcode::shift_left:
    case Opcode::shift_right:
      return shift(ir, opcode, operand, a, b);
    case Opcode::equal:
    case Opcode::not_equal:
    case Opcode::less:
    case Opcode::less_equal:
    case Opcode::greater:
    case Opcode::greater_equal:
      return compare(ir, opcode, operand, a, b);
    case Opcode::floor:
      return is_real ? floor(ir, a) : a;
    case Opcode::ceil:
      return is_real ? ceil(ir, a) : a;
    case Opcode::trunc:
      return is_real ? trunc(ir, a) : a;
    case Opcode::round_even:
      return is_real ? round_even(ir, a) : a;
    case Opcode::copysign:
      return copysign(ir, a, b);
    case Opcode::nextafter:
      return next_after(ir, a, b);
    case Opcode::is_nan:
      return is_nan(ir, a);
    case Opcode::is_inf:
      return fcmp(ir, Compare::eq, fabs(ir, a),
                  real(type_of(a), std::numeric_limits<double>::infinity()));
    case Opcode::sign_bit:
      return sign_of(ir, a);
    case Opcode::random:
      return random_word(ir, a, b);
    case Opcode::sqrt:
    case Opcode::rsqrt:
    case Opcode::exp:
    case Opcode::exp2:
    case Opcode::expm1:
    case Opcode::log:
    case Opcode::log2:
    case Opcode::log10:
    case Opcode::log1p:
    case Opcode::sin:
    case Opcode::cos:
    case Opcode::tan:
    case Opcode::asin:
    case Opcode::acos:
    case Opcode::atan:
    case Opcode::sinh:
    case Opcode::cosh:
    case Opcode::tanh:
    case Opcode::asinh:
    case Opcode::acosh:
    case Opcode::atanh:
    case Opcode::erf:
    case Opcode::erfc:
    case Opcode::erfinv:
    case Opcode::lgamma:
    case Opcode::digamma:
    case Opcode::pow:
    case Opcode::atan2:
    case Opcode::hypot:
      return emit_math(ir, opcode, operands);
    case Opcode::constant:
    case Opcode::index:
    case Opcode::load:
    case Opcode::row:
    case Opcode::indirect:
      break;
  }
  INKLE_CHECK(false, "{} is no operation on values", loop::name_of(opcode));
  return nullptr;
}

}  // namespace inkle::codegen::cpu
