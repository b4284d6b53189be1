// Functions of f32 and f64 as vector code: which opcode is done how.
#include "codegen/cpu/math.h"

#include "codegen/cpu/ir_operations.h"
#include "codegen/cpu/math_parts.h"

namespace inkle::codegen::cpu {

using loop::Opcode;

Value* call_lanes(Ir& ir, std::string_view name, std::span<Value* const> operands) {
  Type* type = type_of(operands[0]);
  const int lanes = lanes_of(type);
  Value* result = poison(type);
  for (int lane = 0; lane < lanes; ++lane) {
    Values arguments;
    for (Value* operand : operands) arguments.push_back(extract(ir, operand, lane));
    result = insert(ir, result, call_scalar(ir, name, element_of(type), arguments), lane);
  }
  return result;
}

namespace {

// libm in f64; the names are those of support.cpp.
Value* by_library(Ir& ir, Opcode opcode, std::span<Value* const> operands) {
  Type* type = type_of(operands[0]);
  Type* wide = ir.f64(lanes_of(type));
  std::string name(loop::name_of(opcode));
  if (opcode == Opcode::digamma || opcode == Opcode::erfinv) name = "inkle_" + name;
  if (bits_of(type) == 64) return call_lanes(ir, name, operands);
  Values extended;
  for (Value* v : operands) extended.push_back(fp_extend(ir, v, wide));
  return fp_truncate(ir, call_lanes(ir, name, extended), type);
}

}  // namespace

Value* emit_math(Ir& ir, Opcode opcode, std::span<Value* const> operands) {
  Value* x = operands[0];
  if (opcode == Opcode::sqrt) return sqrt(ir, x);
  if (opcode == Opcode::rsqrt) return fdiv(ir, real(type_of(x), 1), sqrt(ir, x));
  if (bits_of(type_of(x)) == 64) return by_library(ir, opcode, operands);
  switch (opcode) {
    case Opcode::exp:
      return exp_f32(ir, x);
    case Opcode::exp2:
      return exp2_f32(ir, x);
    case Opcode::expm1:
      return expm1_f32(ir, x);
    case Opcode::log:
      return log_f32(ir, x);
    case Opcode::log2:
      return log2_f32(ir, x);
    case Opcode::log10:
      return log10_f32(ir, x);
    case Opcode::log1p:
      return log1p_f32(ir, x);
    case Opcode::sin:
      return sin_f32(ir, x);
    case Opcode::cos:
      return cos_f32(ir, x);
    case Opcode::tan:
      return tan_f32(ir, x);
    case Opcode::asin:
      return asin_f32(ir, x);
    case Opcode::acos:
      return acos_f32(ir, x);
    case Opcode::atan:
      return atan_f32(ir, x);
    case Opcode::sinh:
      return sinh_f32(ir, x);
    case Opcode::cosh:
      return cosh_f32(ir, x);
    case Opcode::tanh:
      return tanh_f32(ir, x);
    case Opcode::asinh:
      return asinh_f32(ir, x);
    case Opcode::acosh:
      return acosh_f32(ir, x);
    case Opcode::atanh:
      return atanh_f32(ir, x);
    case Opcode::erf:
      return erf_f32(ir, x);
    case Opcode::erfc:
      return erfc_f32(ir, x);
    case Opcode::erfinv:
      return erfinv_f32(ir, x);
    case Opcode::pow:
      return pow_f32(ir, x, operands[1]);
    case Opcode::atan2:
      return atan2_f32(ir, x, operands[1]);
    case Opcode::hypot:
      return hypot_f32(ir, x, operands[1]);
    default:
      return by_library(ir, opcode, operands);
  }
}

}  // namespace inkle::codegen::cpu
