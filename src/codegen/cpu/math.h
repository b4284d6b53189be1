// Functions of f32 and f64 as vector code.
#pragma once

#include <span>
#include <string_view>

#include "codegen/cpu/ir.h"
#include "loop/body.h"

namespace inkle::codegen::cpu {

// A function of body.h's list, of one or two operands of equal type (f32 or f64, any lanes). f32:
// inlined polynomials, at most 2 ULP, special values as libm's; f64, and f32's lgamma and digamma:
// one call of libm a lane.
Value* emit_math(Ir& ir, loop::Opcode opcode, std::span<Value* const> operands);

// The C function of scalars `name`, called for each lane.
Value* call_lanes(Ir& ir, std::string_view name, std::span<Value* const> operands);

// exp of f32, for templates; the second where x is at most 71.
Value* exp_f32(Ir& ir, Value* x);
Value* exp_of_small(Ir& ir, Value* x);

}  // namespace inkle::codegen::cpu
