#include "codegen/cuda/operation.h"

#include "base/error.h"

namespace inkle::codegen::cuda {

using loop::Opcode;

namespace {

bool is_real(DType dtype) { return abi::is_float(dtype); }

// C's integer operators work on int: what is narrower wraps by a cast.
template <class... Parts>
void wrapped(Writer& to, DType dtype, const Parts&... parts) {
  const bool casts = !is_real(dtype) && dtype != DType::boolean;
  if (casts) to.add("(", type_of(dtype), ")(");
  to.add(parts...);
  if (casts) to.add(")");
}

// Signed overflow has no meaning in C++, so integers are added and multiplied unsigned.
void arithmetic(Writer& to, DType dtype, std::string_view op, std::string_view a,
                std::string_view b) {
  if (is_real(dtype)) return to.add(a, " ", op, " ", b);
  const std::string_view as = dtype == DType::i64 ? "(u64)" : "(u32)";
  wrapped(to, dtype, as, a, " ", op, " ", as, b);
}

// Also of bits.
std::string_view operator_on_booleans(Opcode opcode) {
  switch (opcode) {
    case Opcode::add:
    case Opcode::max:
    case Opcode::bit_or:
      return " | ";
    case Opcode::sub:
    case Opcode::bit_xor:
      return " ^ ";
    default:
      return " & ";
  }
}

std::string_view comparison(Opcode opcode) {
  switch (opcode) {
    case Opcode::equal:
      return "==";
    case Opcode::not_equal:
      return "!=";
    case Opcode::less:
      return "<";
    case Opcode::less_equal:
      return "<=";
    case Opcode::greater:
      return ">";
    default:
      return ">=";
  }
}

// Functions that NVRTC has under libm's names.
void function(Writer& to, Opcode opcode, DType dtype, std::span<const ShortText> operands) {
  std::string_view name = loop::name_of(opcode);
  switch (opcode) {
    case Opcode::digamma:
      return to.add("(", type_of(dtype), ")digamma((double)", operands[0], ")");
    case Opcode::erf:
      return to.add("erf_of(", operands[0], ")");
    case Opcode::abs:
      name = "fabs";
      break;
    case Opcode::round_even:
      name = "rint";
      break;
    case Opcode::erfinv:
    case Opcode::rsqrt:
    default:
      break;
  }
  to.add(name, dtype == DType::f32 ? "f(" : "(");
  for (std::size_t i = 0; i < operands.size(); ++i) to.add(i > 0 ? ", " : "", operands[i]);
  to.add(")");
}

void division(Writer& to, Opcode opcode, DType dtype, std::string_view a, std::string_view b,
              bool& can_fail) {
  if (is_real(dtype)) {
    if (opcode == Opcode::div) return to.add(a, " / ", b);
    const std::string_view name = opcode == Opcode::fmod        ? "c_fmod"
                                  : opcode == Opcode::remainder ? "real_modulo"
                                                                : "real_floor_divide";
    return to.add(name, "(", a, ", ", b, ")");
  }
  can_fail = true;
  const std::string_view name = opcode == Opcode::div        ? "divide"
                                : opcode == Opcode::floordiv ? "divide_floor"
                                : opcode == Opcode::fmod     ? "modulo"
                                                             : "modulo_floor";
  to.add(name, "<", type_of(dtype), ">(", a, ", ", b, ", true, status)");
}

}  // namespace

void print_cast(Writer& to, std::string_view value, DType from, DType as) {
  if (from == as) {
    to.add(value);
  } else if (abi::is_reduced_float(from)) {
    print_cast(to, ShortText{"to_f32(", value, ")"}, DType::f32, as);
  } else if (as == DType::boolean) {
    to.add(value, " != 0");
  } else if (as == DType::bf16 || as == DType::f16) {
    to.add(as == DType::bf16 ? "to_bf16(" : "to_f16(", from == DType::f32 ? "" : "(float)", value,
           ")");
  } else {
    const bool by_int = is_real(from) && !is_real(as) && as != DType::i64 && as != DType::i32;
    to.add("(", type_of(as), by_int ? ")(int)" : ")", value);
  }
}

void print_operation(Writer& to, const loop::Instruction& i, DType operand,
                     std::span<const ShortText> v, bool& can_fail) {
  const bool real = is_real(operand);
  switch (i.opcode) {
    case Opcode::cast:
      return print_cast(to, v[0], operand, i.dtype);
    case Opcode::bitcast:
      if (operand == i.dtype) return to.add(v[0]);
      return to.add("bit_cast<", type_of(i.dtype), ">(", v[0], ")");
    case Opcode::select:
      return to.add(v[0], " ? ", v[1], " : ", v[2]);
    case Opcode::add:
    case Opcode::sub:
    case Opcode::mul:
      if (operand == DType::boolean) {
        return to.add(v[0], operator_on_booleans(i.opcode), v[1]);
      }
      return arithmetic(to, operand,
                        i.opcode == Opcode::add   ? "+"
                        : i.opcode == Opcode::sub ? "-"
                                                  : "*",
                        v[0], v[1]);
    case Opcode::bit_and:
    case Opcode::bit_or:
    case Opcode::bit_xor:
      return wrapped(to, operand, v[0], operator_on_booleans(i.opcode), v[1]);
    case Opcode::min:
    case Opcode::max:
      if (operand == DType::boolean) {
        return to.add(v[0], operator_on_booleans(i.opcode), v[1]);
      }
      return to.add(i.opcode == Opcode::min ? "min_of(" : "max_of(", v[0], ", ", v[1], ")");
    case Opcode::div:
    case Opcode::floordiv:
    case Opcode::remainder:
    case Opcode::fmod:
      return division(to, i.opcode, operand, v[0], v[1], can_fail);
    case Opcode::neg:
      if (real) return to.add("-(", v[0], ")");
      if (operand == DType::i64) return arithmetic(to, operand, "-", "0", v[0]);
      return wrapped(to, operand, "negated((u32)", v[0], ")");
    case Opcode::abs:
      if (real) return function(to, i.opcode, operand, v);
      if (operand == DType::u8 || operand == DType::boolean) return to.add(v[0]);
      to.add(v[0], " < 0 ? ");
      arithmetic(to, operand, "-", "0", v[0]);
      return to.add(" : ", v[0]);
    case Opcode::fma:
      return to.add(operand == DType::f32 ? "__fmaf_rn(" : "__fma_rn(", v[0], ", ", v[1], ", ",
                    v[2], ")");
    case Opcode::bit_not:
      return wrapped(to, operand, operand == DType::boolean ? "!" : "~", v[0]);
    case Opcode::shift_left:
    case Opcode::shift_right:
      return to.add(i.opcode == Opcode::shift_left ? "shift_left<" : "shift_right<",
                    type_of(operand), ">(", v[0], ", ", v[1], ")");
    case Opcode::equal:
    case Opcode::not_equal:
    case Opcode::less:
    case Opcode::less_equal:
    case Opcode::greater:
    case Opcode::greater_equal:
      return to.add(v[0], " ", comparison(i.opcode), " ", v[1]);
    case Opcode::floor:
    case Opcode::ceil:
    case Opcode::trunc:
    case Opcode::round_even:
      return real ? function(to, i.opcode, operand, v) : to.add(v[0]);
    case Opcode::is_nan:
      return to.add(v[0], " != ", v[0]);
    case Opcode::is_inf:
      function(to, Opcode::abs, operand, v);
      return to.add(" == ", literal(operand, std::numeric_limits<double>::infinity(), 0));
    case Opcode::sign_bit:
      return to.add(operand == DType::f32 ? "__float_as_int(" : "__double_as_longlong(", v[0],
                    ") < 0");
    case Opcode::random:
      return to.add("philox(", v[0], ", ", v[1], ")");
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
    case Opcode::copysign:
    case Opcode::nextafter:
      return function(to, i.opcode, operand, v);
    case Opcode::constant:
    case Opcode::index:
    case Opcode::load:
    case Opcode::row:
    case Opcode::indirect:
      break;
  }
  INKLE_CHECK(false, "{} is no operation on values", loop::name_of(i.opcode));
}

}  // namespace inkle::codegen::cuda
