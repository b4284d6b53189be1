// Values of a dtype in registers and in memory, and casts between dtypes.
//
// In a register bool is i1 and bf16 is its 16 bits as an integer; in memory bool is a byte 0 or 1.
// The others are the same in both places.
#pragma once

#include <cstdint>

#include "abi/dtype.h"
#include "codegen/cpu/ir.h"

namespace inkle::codegen::cpu {

using abi::DType;

[[nodiscard]] Type* register_type(Ir& ir, DType dtype, int lanes);
[[nodiscard]] Type* memory_type(Ir& ir, DType dtype, int lanes);
Value* to_register(Ir& ir, Value* loaded, DType dtype);
Value* to_memory(Ir& ir, Value* v, DType dtype);
// `real` for floats, rounded to nearest even; else `integer`.
Value* constant_of(Ir& ir, DType dtype, int lanes, double real, std::int64_t integer);
// Opcode::cast.
Value* cast(Ir& ir, Value* v, DType from, DType to);
Value* bf16_to_f32(Ir& ir, Value* v);
Value* f32_to_bf16(Ir& ir, Value* v);

}  // namespace inkle::codegen::cpu
