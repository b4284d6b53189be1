// Values of a dtype in registers and in memory, and casts between dtypes.
#include "codegen/cpu/values.h"

#include <bit>
#include <cstring>

#include "base/error.h"

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
  return ir.icmp(Compare::ne, loaded, Ir::zero(Ir::type_of(loaded)));
}

Value* to_memory(Ir& ir, Value* v, DType dtype) {
  if (dtype != DType::boolean) return v;
  return ir.zext(v, ir.integer_type(8, Ir::lanes_of(v)));
}

namespace {

// Round to nearest even of the upper half of the bits; a NaN becomes the quiet one.
std::uint16_t bf16_bits(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return 0x7fc0;
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

}  // namespace

Value* constant_of(Ir& ir, DType dtype, int lanes, double real, std::int64_t integer) {
  Type* type = register_type(ir, dtype, lanes);
  if (dtype == DType::bf16) return Ir::integer(type, bf16_bits(static_cast<float>(real)));
  if (dtype == DType::boolean) return Ir::integer(type, integer != 0 ? 1 : 0);
  return abi::is_float(dtype) ? Ir::real(type, real) : Ir::integer(type, integer);
}

Value* bf16_to_f32(Ir& ir, Value* v) {
  const int lanes = Ir::lanes_of(v);
  return ir.bitcast(ir.shl(ir.zext(v, ir.integer_type(32, lanes)), 16), ir.f32(lanes));
}

Value* f32_to_bf16(Ir& ir, Value* v) {
  const int lanes = Ir::lanes_of(v);
  Type* word = ir.integer_type(32, lanes);
  Value* bits = ir.bitcast(v, word);
  Value* odd = ir.bit_and(ir.lshr(bits, 16), Ir::integer(word, 1));
  Value* rounded = ir.lshr(ir.add(ir.add(bits, Ir::integer(word, 0x7fff)), odd), 16);
  Value* result = ir.select(ir.is_nan(v), Ir::integer(word, 0x7fc0), rounded);
  return ir.truncate(result, ir.integer_type(16, lanes));
}

namespace {

Value* float_to_float(Ir& ir, Value* v, DType from, DType to) {
  const int lanes = Ir::lanes_of(v);
  if (from == DType::bf16) return float_to_float(ir, bf16_to_f32(ir, v), DType::f32, to);
  if (from == to) return v;
  if (from == DType::f16) {
    return float_to_float(ir, ir.fp_extend(v, ir.f32(lanes)), DType::f32, to);
  }
  if (from == DType::f64) {
    // As ATen: the narrow types are reached through f32.
    return float_to_float(ir, ir.fp_truncate(v, ir.f32(lanes)), DType::f32, to);
  }
  if (to == DType::f64) return ir.fp_extend(v, ir.f64(lanes));
  if (to == DType::bf16) return f32_to_bf16(ir, v);
  if (lanes > 1) return ir.fp_truncate(v, ir.f16(lanes));
  // Where a scalar comes from f64, LLVM makes one rounding of the two, by a function that does not
  // exist here; of vectors it does not.
  constexpr int kVector = 4;
  return ir.extract(ir.fp_truncate(ir.broadcast(v, kVector), ir.f16(kVector)), 0);
}

Value* float_to_integer(Ir& ir, Value* v, DType from, DType to) {
  const int lanes = Ir::lanes_of(v);
  if (abi::is_reduced_float(from)) {
    v = float_to_float(ir, v, from, DType::f32);
  }
  if (to == DType::boolean) return ir.fcmp(Compare::ne, v, Ir::zero(Ir::type_of(v)));
  if (to == DType::i64) return ir.fp_to_signed(v, ir.integer_type(64, lanes));
  return ir.resize_signed(ir.fp_to_signed(v, ir.integer_type(32, lanes)),
                          register_type(ir, to, lanes));
}

Value* integer_to_float(Ir& ir, Value* v, DType from, DType to) {
  const int lanes = Ir::lanes_of(v);
  const DType through = abi::compute_type(to);
  Type* type = register_type(ir, through, lanes);
  Value* result = nullptr;
  if (from == DType::boolean) {
    result = ir.select(v, Ir::real(type, 1), Ir::zero(type));
  } else if (from == DType::i64) {
    result = ir.signed_to_fp(v, type);
  } else {
    Type* word = ir.integer_type(32, lanes);
    if (from != DType::i32) v = from == DType::u8 ? ir.zext(v, word) : ir.sext(v, word);
    result = ir.signed_to_fp(v, type);
  }
  return float_to_float(ir, result, through, to);
}

}  // namespace

Value* cast(Ir& ir, Value* v, DType from, DType to) {
  if (from == to) return v;
  const int lanes = Ir::lanes_of(v);
  if (abi::is_float(from)) {
    return abi::is_float(to) ? float_to_float(ir, v, from, to) : float_to_integer(ir, v, from, to);
  }
  if (abi::is_float(to)) return integer_to_float(ir, v, from, to);
  if (to == DType::boolean) return ir.icmp(Compare::ne, v, Ir::zero(Ir::type_of(v)));
  Type* type = register_type(ir, to, lanes);
  if (from == DType::boolean || from == DType::u8) {
    return Ir::bits_of(type) > Ir::bits_of(Ir::type_of(v)) ? ir.zext(v, type)
                                                           : ir.resize_signed(v, type);
  }
  return ir.resize_signed(v, type);
}

}  // namespace inkle::codegen::cpu
