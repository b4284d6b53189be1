// Functions of f32 and f64 as vector code: which opcode is done how.
#include "codegen/cpu/math.h"

#include "base/error.h"

namespace inkle::codegen::cpu {

using loop::Opcode;

Value* call_lanes(Ir& ir, std::string_view name, std::span<Value* const> operands) {
  Type* type = Ir::type_of(operands[0]);
  const int lanes = Ir::lanes_of(type);
  Value* result = Ir::poison(type);
  for (int lane = 0; lane < lanes; ++lane) {
    Values arguments;
    for (Value* operand : operands) arguments.push_back(ir.extract(operand, lane));
    result = ir.insert(result, ir.call_scalar(name, Ir::element_of(type), arguments), lane);
  }
  return result;
}

namespace {

// libm in f64; the names are those of support.cpp.
Value* by_library(Ir& ir, Opcode opcode, std::span<Value* const> operands) {
  Type* type = Ir::type_of(operands[0]);
  Type* wide = ir.f64(Ir::lanes_of(type));
  std::string name(loop::name_of(opcode));
  if (opcode == Opcode::digamma || opcode == Opcode::erfinv) name = "inkle_" + name;
  if (Ir::bits_of(type) == 64) return call_lanes(ir, name, operands);
  Values extended;
  for (Value* v : operands) extended.push_back(ir.fp_extend(v, wide));
  return ir.fp_truncate(call_lanes(ir, name, extended), type);
}

}  // namespace

Value* exp_f32(Ir& ir, Value* x) {
  Value* const operands[] = {x};
  return by_library(ir, Opcode::exp, operands);
}

Value* emit_math(Ir& ir, Opcode opcode, std::span<Value* const> operands) {
  Value* x = operands[0];
  if (opcode == Opcode::sqrt) return ir.sqrt(x);
  if (opcode == Opcode::rsqrt) return ir.fdiv(Ir::real(Ir::type_of(x), 1), ir.sqrt(x));
  return by_library(ir, opcode, operands);
}

}  // namespace inkle::codegen::cpu
