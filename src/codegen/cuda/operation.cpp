#include "codegen/cuda/operation.h"

#include "base/error.h"

namespace inkle::codegen::cuda {

using loop::Opcode;

namespace {

bool is_real(DType dtype) { return abi::is_float(dtype); }

// C's integer operators work on int: what is narrower wraps by a cast.
std::string wrapped(DType dtype, const std::string& text) {
  if (is_real(dtype) || dtype == DType::boolean) return text;
  return concat({"(", type_of(dtype), ")(", text, ")"});
}

// Signed overflow has no meaning in C++, so integers are added and multiplied unsigned.
std::string arithmetic(DType dtype, const char* op, const std::string& a, const std::string& b) {
  if (is_real(dtype)) return concat({a, " ", op, " ", b});
  const std::string_view as = dtype == DType::i64 ? "(u64)" : "(u32)";
  return wrapped(dtype, concat({as, a, " ", op, " ", as, b}));
}

std::string on_booleans(Opcode opcode, const std::string& a, const std::string& b) {
  switch (opcode) {
    case Opcode::add:
    case Opcode::max:
    case Opcode::bit_or:
      return a + " | " + b;
    case Opcode::sub:
    case Opcode::bit_xor:
      return a + " ^ " + b;
    default:
      return a + " & " + b;
  }
}

const char* comparison(Opcode opcode) {
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
std::string function(Opcode opcode, DType dtype, std::span<const std::string> operands) {
  std::string name(loop::name_of(opcode));
  switch (opcode) {
    case Opcode::digamma:
      return fmt::format("({})digamma((double){})", type_of(dtype), operands[0]);
    case Opcode::erf:
      return fmt::format("erf_of({})", operands[0]);
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
  std::string arguments;
  for (const std::string& operand : operands) {
    arguments += (arguments.empty() ? "" : ", ") + operand;
  }
  return concat({name, dtype == DType::f32 ? "f(" : "(", arguments, ")"});
}

std::string division(Opcode opcode, DType dtype, const std::string& a, const std::string& b,
                     const std::string& active, bool& can_fail) {
  if (is_real(dtype)) {
    if (opcode == Opcode::div) return a + " / " + b;
    const char* name = opcode == Opcode::fmod        ? "c_fmod"
                       : opcode == Opcode::remainder ? "real_modulo"
                                                     : "real_floor_divide";
    return fmt::format("{}({}, {})", name, a, b);
  }
  can_fail = true;
  const char* name = opcode == Opcode::div        ? "divide"
                     : opcode == Opcode::floordiv ? "divide_floor"
                     : opcode == Opcode::fmod     ? "modulo"
                                                  : "modulo_floor";
  return fmt::format("{}<{}>({}, {}, {}, status)", name, type_of(dtype), a, b,
                     active.empty() ? "true" : active);
}

}  // namespace

std::string cast_text(const std::string& value, DType from, DType to) {
  if (from == to) return value;
  if (abi::is_reduced_float(from)) {
    return cast_text(concat({"to_f32(", value, ")"}), DType::f32, to);
  }
  if (to == DType::boolean) return value + " != 0";
  if (to == DType::bf16 || to == DType::f16) {
    const std::string single = from == DType::f32 ? value : "(float)" + value;
    return concat({to == DType::bf16 ? "to_bf16(" : "to_f16(", single, ")"});
  }
  if (is_real(from) && !is_real(to) && to != DType::i64 && to != DType::i32) {
    return concat({"(", type_of(to), ")(int)", value});
  }
  return concat({"(", type_of(to), ")", value});
}

std::string operation_text(const loop::Instruction& i, DType operand,
                           std::span<const std::string> v, const std::string& active,
                           bool& can_fail) {
  const bool real = is_real(operand);
  switch (i.opcode) {
    case Opcode::cast:
      return cast_text(v[0], operand, i.dtype);
    case Opcode::bitcast: {
      return operand == i.dtype ? v[0] : concat({"bit_cast<", type_of(i.dtype), ">(", v[0], ")"});
    }
    case Opcode::select:
      return concat({v[0], " ? ", v[1], " : ", v[2]});
    case Opcode::add:
    case Opcode::sub:
    case Opcode::mul:
      if (operand == DType::boolean) return on_booleans(i.opcode, v[0], v[1]);
      return arithmetic(operand,
                        i.opcode == Opcode::add   ? "+"
                        : i.opcode == Opcode::sub ? "-"
                                                  : "*",
                        v[0], v[1]);
    case Opcode::bit_and:
    case Opcode::bit_or:
    case Opcode::bit_xor:
      return wrapped(operand, on_booleans(i.opcode, v[0], v[1]));
    case Opcode::min:
    case Opcode::max:
      if (operand == DType::boolean) return on_booleans(i.opcode, v[0], v[1]);
      return concat({i.opcode == Opcode::min ? "min_of(" : "max_of(", v[0], ", ", v[1], ")"});
    case Opcode::div:
    case Opcode::floordiv:
    case Opcode::remainder:
    case Opcode::fmod:
      return division(i.opcode, operand, v[0], v[1], active, can_fail);
    case Opcode::neg:
      return real ? "-(" + v[0] + ")" : arithmetic(operand, "-", "0", v[0]);
    case Opcode::abs:
      if (real) return function(i.opcode, operand, v);
      if (operand == DType::u8 || operand == DType::boolean) return v[0];
      return fmt::format("{0} < 0 ? {1} : {0}", v[0], arithmetic(operand, "-", "0", v[0]));
    case Opcode::fma:
      return concat(
          {operand == DType::f32 ? "__fmaf_rn(" : "__fma_rn(", v[0], ", ", v[1], ", ", v[2], ")"});
    case Opcode::bit_not:
      return operand == DType::boolean ? "!" + v[0] : wrapped(operand, "~" + v[0]);
    case Opcode::shift_left:
    case Opcode::shift_right:
      return fmt::format("{}<{}>({}, {})",
                         i.opcode == Opcode::shift_left ? "shift_left" : "shift_right",
                         type_of(operand), v[0], v[1]);
    case Opcode::equal:
    case Opcode::not_equal:
    case Opcode::less:
    case Opcode::less_equal:
    case Opcode::greater:
    case Opcode::greater_equal:
      return concat({v[0], " ", comparison(i.opcode), " ", v[1]});
    case Opcode::floor:
    case Opcode::ceil:
    case Opcode::trunc:
    case Opcode::round_even:
      return real ? function(i.opcode, operand, v) : v[0];
    case Opcode::is_nan:
      return fmt::format("{0} != {0}", v[0]);
    case Opcode::is_inf:
      return fmt::format("{} == {}", function(Opcode::abs, operand, v),
                         literal(operand, std::numeric_limits<double>::infinity(), 0));
    case Opcode::sign_bit:
      return operand == DType::f32 ? fmt::format("__float_as_int({}) < 0", v[0])
                                   : fmt::format("__double_as_longlong({}) < 0", v[0]);
    case Opcode::random:
      return fmt::format("philox({}, {})", v[0], v[1]);
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
      return function(i.opcode, operand, v);
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
