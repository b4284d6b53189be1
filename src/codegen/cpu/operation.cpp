// Code of one instruction of a body whose operands are known.
#include "codegen/cpu/operation.h"

#include "base/error.h"
#include "codegen/cpu/math.h"

namespace inkle::codegen::cpu {

using loop::Opcode;

void Faults::check(Ir& ir, Value* bad, Value* active, schedule::KernelStatus status_code) {
  can_fail = true;
  if (active != nullptr && Ir::lanes_of(active) == Ir::lanes_of(bad)) bad = ir.bit_and(bad, active);
  ir.branch(
      ir.any(bad), false,
      [&] {
        ir.store(ir.i64(static_cast<std::int64_t>(status_code)), status, 8);
        return Values();
      },
      [] { return Values(); });
}

namespace {

// min and max propagate NaN: vminps gives its second operand when either is NaN.
Value* extremum(Ir& ir, bool minimum, DType dtype, Value* a, Value* b) {
  if (dtype == DType::boolean) return minimum ? ir.bit_and(a, b) : ir.bit_or(a, b);
  if (abi::is_float(dtype)) {
    Value* r = minimum ? ir.fmin_second(a, b) : ir.fmax_second(a, b);
    return ir.select(ir.is_nan(a), a, r);
  }
  if (dtype == DType::u8) {
    return ir.select(ir.icmp(minimum ? Compare::ult : Compare::ugt, a, b), a, b);
  }
  return minimum ? ir.smin(a, b) : ir.smax(a, b);
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
  if (abi::is_float(dtype)) return ir.fcmp(c, a, b);
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
  return ir.icmp(c, a, b);
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
  Type* type = Ir::type_of(a);
  const int lanes = Ir::lanes_of(a);
  Value* zero_divisor = ir.icmp(Compare::eq, b, Ir::zero(type));
  std::int64_t constant = 0;
  Value* first = lanes == 1 ? b : ir.extract(b, 0);
  const bool is_constant = Ir::constant_integer(first, constant) &&
                           Ir::constant_integer(ir.extract(b, lanes - 1), constant);
  if (!is_constant || constant == 0) {
    faults.check(ir, zero_divisor, active, schedule::KernelStatus::division_by_zero);
    b = ir.select(zero_divisor, Ir::integer(type, 1), b);
  }
  if (dtype == DType::u8) {
    return {ir.udiv(a, b), ir.urem(a, b)};
  }
  if (is_constant && constant != 0 && constant != -1) {
    Value* q = ir.sdiv(a, b);
    return {q, ir.sub(a, ir.mul(q, b))};
  }
  if (dtype != DType::i64 && lanes > 1) {
    Type* real = ir.f64(lanes);
    Value* quotient = ir.fdiv(ir.signed_to_fp(a, real), ir.signed_to_fp(b, real));
    // Through i64: min / -1 is 2^31, which wraps.
    Value* q = ir.truncate(ir.fp_to_signed(quotient, ir.integer_type(64, lanes)), type);
    return {q, ir.sub(a, ir.mul(q, b))};
  }
  Value* minus_one = ir.icmp(Compare::eq, b, Ir::integer(type, -1));
  Value* safe = ir.select(minus_one, Ir::integer(type, 1), b);
  Value* q = ir.sdiv(a, safe);
  q = ir.select(minus_one, ir.sub(Ir::zero(type), a), q);
  return {q, ir.sub(a, ir.mul(q, b))};
}

Value* integer_division(Ir& ir, Opcode opcode, DType dtype, Value* a, Value* b, Value* active,
                        Faults& faults) {
  const Division d = divide(ir, dtype, a, b, active, faults);
  if (opcode == Opcode::div) return d.quotient;
  if (opcode == Opcode::fmod || (opcode == Opcode::remainder && dtype == DType::u8)) {
    return d.remainder;
  }
  if (dtype == DType::u8) return d.quotient;
  Type* type = Ir::type_of(a);
  Value* zero = Ir::zero(type);
  Value* opposite = ir.icmp(Compare::lt, ir.bit_xor(d.remainder, b), zero);
  Value* adjust = ir.bit_and(ir.icmp(Compare::ne, d.remainder, zero), opposite);
  if (opcode == Opcode::floordiv) return ir.sub(d.quotient, ir.zext(adjust, type));
  return ir.select(adjust, ir.add(d.remainder, b), d.remainder);
}

// ATen's div_floor_floating and remainder.
Value* float_division(Ir& ir, Opcode opcode, Value* a, Value* b) {
  if (opcode == Opcode::div) return ir.fdiv(a, b);
  const bool wide = Ir::bits_of(Ir::type_of(a)) == 64;
  Value* const operands[] = {a, b};
  Value* modulus = call_lanes(ir, wide ? "fmod" : "fmodf", operands);
  if (opcode == Opcode::fmod) return modulus;
  Type* type = Ir::type_of(a);
  Value* zero = Ir::zero(type);
  Value* opposite = ir.bit_xor(ir.fcmp(Compare::lt, b, zero), ir.fcmp(Compare::lt, modulus, zero));
  Value* adjust = ir.bit_and(ir.fcmp(Compare::ne, modulus, zero), opposite);
  if (opcode == Opcode::remainder) return ir.select(adjust, ir.fadd(modulus, b), modulus);
  Value* quotient = ir.fdiv(ir.fsub(a, modulus), b);
  quotient = ir.select(adjust, ir.fsub(quotient, Ir::real(type, 1)), quotient);
  Value* down = ir.floor(quotient);
  Value* off = ir.fcmp(Compare::gt, ir.fsub(quotient, down), Ir::real(type, 0.5));
  down = ir.select(off, ir.fadd(down, Ir::real(type, 1)), down);
  Value* plain = ir.fdiv(a, b);
  Value* result = ir.select(ir.fcmp(Compare::ne, quotient, zero), down, ir.copysign(zero, plain));
  return ir.select(ir.fcmp(Compare::eq, b, zero), plain, result);
}

Value* shift(Ir& ir, Opcode opcode, DType dtype, Value* a, Value* count) {
  Type* type = Ir::type_of(a);
  const int width = Ir::bits_of(type);
  Value* too_far = ir.icmp(Compare::uge, count, Ir::integer(type, width));
  Value* last = Ir::integer(type, width - 1);
  if (opcode == Opcode::shift_left || dtype == DType::u8) {
    Value* safe = ir.select(too_far, last, count);
    Value* r = opcode == Opcode::shift_left ? ir.shl(a, safe) : ir.lshr(a, safe);
    return ir.select(too_far, Ir::zero(type), r);
  }
  return ir.ashr(a, ir.select(too_far, last, count));
}

Value* absolute(Ir& ir, DType dtype, Value* a) {
  if (abi::is_float(dtype)) return ir.fabs(a);
  if (dtype == DType::u8 || dtype == DType::boolean) return a;
  return ir.smax(a, ir.sub(Ir::zero(Ir::type_of(a)), a));
}

Value* next_after(Ir& ir, Value* a, Value* b) {
  Value* const operands[] = {a, b};
  return call_lanes(ir, Ir::bits_of(Ir::type_of(a)) == 64 ? "nextafter" : "nextafterf", operands);
}

Value* sign_of(Ir& ir, Value* a) {
  Type* integer = ir.as_integer(Ir::type_of(a));
  return ir.icmp(Compare::lt, ir.bitcast(a, integer), Ir::zero(integer));
}

Value* random_word(Ir& ir, Value* seed, Value* offset) {
  const std::array<Value*, 4> words = philox(ir, seed, ir.lshr(offset, 2));
  Type* type = Ir::type_of(offset);
  const auto has = [&](int bit) {
    return ir.icmp(Compare::ne, ir.bit_and(offset, Ir::integer(type, bit)), Ir::zero(type));
  };
  Value* odd = has(1);
  return ir.select(has(2), ir.select(odd, words[3], words[2]), ir.select(odd, words[1], words[0]));
}

Value* emit_binary(Ir& ir, Opcode opcode, DType dtype, Value* a, Value* b) {
  const bool real = abi::is_float(dtype);
  switch (opcode) {
    case Opcode::add:
      if (dtype == DType::boolean) return ir.bit_or(a, b);
      return real ? ir.fadd(a, b) : ir.add(a, b);
    case Opcode::sub:
      if (dtype == DType::boolean) return ir.bit_xor(a, b);
      return real ? ir.fsub(a, b) : ir.sub(a, b);
    case Opcode::mul:
      if (dtype == DType::boolean) return ir.bit_and(a, b);
      return real ? ir.fmul(a, b) : ir.mul(a, b);
    case Opcode::min:
      return extremum(ir, true, dtype, a, b);
    case Opcode::max:
      return extremum(ir, false, dtype, a, b);
    case Opcode::bit_and:
      return ir.bit_and(a, b);
    case Opcode::bit_or:
      return ir.bit_or(a, b);
    case Opcode::bit_xor:
      return ir.bit_xor(a, b);
    default:
      break;
  }
  INKLE_CHECK(false, "{} is no binary operation", loop::name_of(opcode));
  return nullptr;
}

// One of the ten rounds of Philox-4x32: words of 32 bits in lanes of 64.
void philox_round(Ir& ir, std::span<Value*, 4> c, std::span<Value* const, 2> key) {
  Type* type = Ir::type_of(c[0]);
  Value* mask = Ir::integer(type, 0xffffffff);
  Value* p0 = ir.mul(c[0], Ir::integer(type, 0xD2511F53));
  Value* p1 = ir.mul(c[2], Ir::integer(type, 0xCD9E8D57));
  Value* next[4] = {ir.bit_xor(ir.bit_xor(ir.lshr(p1, 32), c[1]), key[0]), ir.bit_and(p1, mask),
                    ir.bit_xor(ir.bit_xor(ir.lshr(p0, 32), c[3]), key[1]), ir.bit_and(p0, mask)};
  for (std::size_t i = 0; i < 4; ++i) c[i] = next[i];
}

}  // namespace

std::array<Value*, 4> philox(Ir& ir, Value* seed, Value* counter) {
  Type* type = Ir::type_of(seed);
  Value* mask = Ir::integer(type, 0xffffffff);
  Value* key[2] = {ir.bit_and(seed, mask), ir.lshr(seed, 32)};
  std::array<Value*, 4> c = {ir.bit_and(counter, mask), ir.lshr(counter, 32), Ir::zero(type),
                             Ir::zero(type)};
  for (int round = 0; round < 10; ++round) {
    if (round > 0) {
      key[0] = ir.bit_and(ir.add(key[0], Ir::integer(type, 0x9E3779B9)), mask);
      key[1] = ir.bit_and(ir.add(key[1], Ir::integer(type, 0xBB67AE85)), mask);
    }
    philox_round(ir, c, key);
  }
  return c;
}

// Interleaving halves log2(lanes) times moves element (i, j) to (j, i).
void transpose(Ir& ir, Values& square) {
  const std::size_t n = square.size();
  const auto lanes = static_cast<int>(n);
  INKLE_CHECK(Ir::lanes_of(square[0]) == lanes, "{} vectors of {} lanes to transpose", n,
              Ir::lanes_of(square[0]));
  std::vector<int> low;
  std::vector<int> high;
  for (int i = 0; i < lanes / 2; ++i) {
    low.insert(low.end(), {i, lanes + i});
    high.insert(high.end(), {lanes / 2 + i, lanes + lanes / 2 + i});
  }
  for (std::size_t done = 1; done < n; done *= 2) {
    Values next;
    for (std::size_t i = 0; i < n / 2; ++i) {
      next.push_back(ir.shuffle(square[i], square[i + n / 2], low));
      next.push_back(ir.shuffle(square[i], square[i + n / 2], high));
    }
    square = std::move(next);
  }
}

Value* emit_operation(Ir& ir, const loop::Instruction& instruction, DType operand,
                      std::span<Value* const> operands, Value* active, Faults& faults) {
  Value* a = operands.empty() ? nullptr : operands[0];
  Value* b = operands.size() > 1 ? operands[1] : nullptr;
  const bool real = abi::is_float(operand);
  const Opcode opcode = instruction.opcode;
  switch (opcode) {
    case Opcode::cast:
      return cast(ir, a, operand, instruction.dtype);
    case Opcode::bitcast:
      return ir.bitcast(a, register_type(ir, instruction.dtype, Ir::lanes_of(a)));
    case Opcode::select:
      return ir.select(a, b, operands[2]);
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
      return real ? float_division(ir, opcode, a, b)
                  : integer_division(ir, opcode, operand, a, b, active, faults);
    case Opcode::neg:
      return real ? ir.fneg(a) : ir.sub(Ir::zero(Ir::type_of(a)), a);
    case Opcode::abs:
      return absolute(ir, operand, a);
    case Opcode::fma:
      return ir.fma(a, b, operands[2]);
    case Opcode::bit_not:
      return ir.bit_not(a);
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
      return real ? ir.floor(a) : a;
    case Opcode::ceil:
      return real ? ir.ceil(a) : a;
    case Opcode::trunc:
      return real ? ir.trunc(a) : a;
    case Opcode::round_even:
      return real ? ir.round_even(a) : a;
    case Opcode::copysign:
      return ir.copysign(a, b);
    case Opcode::nextafter:
      return next_after(ir, a, b);
    case Opcode::is_nan:
      return ir.is_nan(a);
    case Opcode::is_inf:
      return ir.fcmp(Compare::eq, ir.fabs(a),
                     Ir::real(Ir::type_of(a), std::numeric_limits<double>::infinity()));
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
