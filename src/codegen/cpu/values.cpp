// Values of a dtype in registers and in memory, and casts between dtypes.
#include "codegen/cpu/values.h"

#include <bit>
#include <cstring>

#include "base/error.h"
#include "codegen/cpu/ir_operations.h"

namespace inkle::codegen::cpu {

Type* register_type(Ir& ir, DType dtype, int lanes) {
  switch (dtype) {
    case DType::boolean:
      return ir.integer_type(1, lanes);
    case DType::u8:
    case DType::i8:
      return ir.integer_type(8, lanes);
    case DType::i16:
    case DType::bf16:
      return ir.integer_type(16, lanes);
    case DType::i32:
      return ir.integer_type(32, lanes);
    case DType::i64:
      return ir.integer_type(64, lanes);
    case DType::f16:
      return ir.f16(lanes);
    case DType::f32:
      return ir.f32(lanes);
    case DType::f64:
      return ir.f64(lanes);
    default:
      unsupported("no code for values of type {}", abi::name_of(dtype));
  }
}

Type* memory_type(Ir& ir, DType dtype, int lanes) {
  return dtype == DType::boolean ? ir.integer_type(8, lanes) : register_type(ir, dtype, lanes);
}

Value* to_register(Ir& ir, Value* loaded, DType dtype) {
  if (dtype != DType::boolean) return loaded;
  return icmp(ir, Compare::ne, loaded, zero(type_of(loaded)));
}

Value* to_memory(Ir& ir, Value* v, DType dtype) {
  if (dtype != DType::boolean) return v;
  return zext(ir, v, ir.integer_type(8, lanes_of(v)));
}

namespace {

// Round to nearest even of the upper half of the bits; a NaN becomes the quiet one.
std::uint16_t bf16_bits(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return 0x7fc0;
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

}  // namespace

Value* constant_of(Ir& ir, DType dtype, int lanes, double of_float, std::int64_t of_integer) {
  Type* type = register_type(ir, dtype, lanes);
  if (dtype == DType::bf16) return integer(type, bf16_bits(static_cast<float>(of_float)));
  if (dtype == DType::boolean) return integer(type, of_integer != 0 ? 1 : 0);
  return abi::is_float(dtype) ? real(type, of_float) : integer(type, of_integer);
}

Value* bf16_to_f32(Ir& ir, Value* v) {
  const int lanes = lanes_of(v);
  return bitcast(ir, shl(ir, zext(ir, v, ir.integer_type(32, lanes)), 16), ir.f32(lanes));
}

Value* f32_to_bf16(Ir& ir, Value* v) {
  const int lanes = lanes_of(v);
  Type* word = ir.integer_type(32, lanes);
  Value* bits = bitcast(ir, v, word);
  Value* odd = bit_and(ir, lshr(ir, bits, 16), integer(word, 1));
  Value* rounded = lshr(ir, add(ir, add(ir, bits, integer(word, 0x7fff)), odd), 16);
  Value* result = select(ir, is_nan(ir, v), integer(word, 0x7fc0), rounded);
  return truncate(ir, result, ir.integer_type(16, lanes));
}

namespace {

Value* float_to_float(Ir& ir, Value* v, DType from, DType to) {
  const int lanes = lanes_of(v);
  if (from == DType::bf16) return float_to_float(ir, bf16_to_f32(ir, v), DType::f32, to);
  if (from == to) return v;
  if (from == DType::f16) {
    return float_to_float(ir, fp_extend(ir, v, ir.f32(lanes)), DType::f32, to);
  }
  if (from == DType::f64) {
    // As ATen: the narrow types are reached through f32.
    return float_to_float(ir, fp_truncate(ir, v, ir.f32(lanes)), DType::f32, to);
  }
  if (to == DType::f64) return fp_extend(ir, v, ir.f64(lanes));
  if (to == DType::bf16) return f32_to_bf16(ir, v);
  if (lanes > 1) return fp_truncate(ir, v, ir.f16(lanes));
  // Where a scalar comes from f64, LLVM makes one rounding of the two, by a function that does not
  // exist here; of vectors it does not.
  constexpr int kVector = 4;
  return extract(ir, fp_truncate(ir, broadcast(ir, v, kVector), ir.f16(kVector)), 0);
}

Value* float_to_integer(Ir& ir, Value* v, DType from, DType to) {
  const int lanes = lanes_of(v);
  if (abi::is_reduced_float(from)) {
    v = float_to_float(ir, v, from, DType::f32);
  }
  if (to == DType::boolean) return fcmp(ir, Compare::ne, v, zero(type_of(v)));
  if (to == DType::i64) return fp_to_signed(ir, v, ir.integer_type(64, lanes));
  return resize_signed(ir, fp_to_signed(ir, v, ir.integer_type(32, lanes)),
                       register_type(ir, to, lanes));
}

Value* integer_to_float(Ir& ir, Value* v, DType from, DType to) {
  const int lanes = lanes_of(v);
  const DType through = abi::compute_type(to);
  Type* type = register_type(ir, through, lanes);
  Value* result = nullptr;
  if (from == DType::boolean) {
    result = select(ir, v, real(type, 1), zero(type));
  } else if (from == DType::i64) {
    result = signed_to_fp(ir, v, type);
  } else {
    Type* word = ir.integer_type(32, lanes);
    if (from != DType::i32) v = from == DType::u8 ? zext(ir, v, word) : sext(ir, v, word);
    result = signed_to_fp(ir, v, type);
  }
  return float_to_float(ir, result, through, to);
}

}  // namespace

Value* cast(Ir& ir, Value* v, DType from, DType to) {
  if (from == to) return v;
  const int lanes = lanes_of(v);
  if (abi::is_float(from)) {
    return abi::is_float(to) ? float_to_float(ir, v, from, to) : float_to_integer(ir, v, from, to);
  }
  if (abi::is_float(to)) return integer_to_float(ir, v, from, to);
  if (to == DType::boolean) return icmp(ir, Compare::ne, v, zero(type_of(v)));
  Type* type = register_type(ir, to, lanes);
  if (from == DType::boolean || from == DType::u8) {
    return bits_of(type) > bits_of(type_of(v)) ? zext(ir, v, type) : resize_signed(ir, v, type);
  }
  return resize_signed(ir, v, type);
}

}  // namespace inkle::codegen::cpu
