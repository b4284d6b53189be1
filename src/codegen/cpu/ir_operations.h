// Arithmetic, conversions, vectors and memory: instructions at the insertion point of `ir`.
#pragma once

#include <span>

#include "codegen/cpu/ir.h"

namespace inkle::codegen::cpu {

// Of floats: ordered, but `ne` (true on NaN) and `unordered`. Of integers: signed, or unsigned u*.
enum class Compare : std::uint8_t { eq, ne, lt, le, gt, ge, ult, ule, ugt, uge, unordered };

// Arithmetic.
Value* add(Ir& ir, Value* a, Value* b);
Value* sub(Ir& ir, Value* a, Value* b);
Value* mul(Ir& ir, Value* a, Value* b);
Value* sdiv(Ir& ir, Value* a, Value* b);
Value* srem(Ir& ir, Value* a, Value* b);
Value* udiv(Ir& ir, Value* a, Value* b);
Value* urem(Ir& ir, Value* a, Value* b);
Value* bit_and(Ir& ir, Value* a, Value* b);
Value* bit_or(Ir& ir, Value* a, Value* b);
Value* bit_xor(Ir& ir, Value* a, Value* b);
Value* bit_not(Ir& ir, Value* a);
Value* shl(Ir& ir, Value* a, Value* b);
Value* lshr(Ir& ir, Value* a, Value* b);
Value* ashr(Ir& ir, Value* a, Value* b);
inline Value* shl(Ir& ir, Value* a, int count) { return shl(ir, a, integer(type_of(a), count)); }
inline Value* lshr(Ir& ir, Value* a, int count) { return lshr(ir, a, integer(type_of(a), count)); }
inline Value* ashr(Ir& ir, Value* a, int count) { return ashr(ir, a, integer(type_of(a), count)); }
Value* fadd(Ir& ir, Value* a, Value* b);
Value* fsub(Ir& ir, Value* a, Value* b);
Value* fmul(Ir& ir, Value* a, Value* b);
Value* fdiv(Ir& ir, Value* a, Value* b);
Value* fneg(Ir& ir, Value* a);
// Rounded once; without such an instruction through f64, of f64 in parts (within an ulp).
Value* fma(Ir& ir, Value* a, Value* b, Value* c);
Value* fabs(Ir& ir, Value* a);
Value* sqrt(Ir& ir, Value* a);
Value* floor(Ir& ir, Value* a);
Value* ceil(Ir& ir, Value* a);
Value* trunc(Ir& ir, Value* a);
Value* round_even(Ir& ir, Value* a);
Value* copysign(Ir& ir, Value* magnitude, Value* sign);
// a * 2^floor(n) with one rounding for f32 vectors and |n| < 300, where the machine has an
// instruction for it; else null. Other lanes than those of `where` are 0.
Value* scale_by_power(Ir& ir, Value* a, Value* n, Value* where = nullptr);
// table[i modulo the lanes] for f32 vectors of as many lanes as the table has entries, i integer
// lanes of 32 bits, where the machine has an instruction for it; else null.
Value* look_up(Ir& ir, std::span<const double> table, Value* i);
// 1 / a with a relative error of at most 2^-14 for f32 vectors, where the machine has an
// instruction for it; else null.
Value* approximate_reciprocal(Ir& ir, Value* a);
// A pair of bf16 in each lane of 32 bits: `low` and `high`, 16 lanes of f32, rounded; subnormals
// are flushed to 0. With AVX512-BF16 alone.
Value* pack_bf16(Ir& ir, Value* low, Value* high);
// c + a * b of such pairs, the high products first, each rounded.
Value* dot_bf16(Ir& ir, Value* c, Value* a, Value* b);
// Tile registers (AMX) of `rows` rows of `columns` elements of 32 bits. LLVM assigns registers and
// writes their configuration; `row_bytes` (i64) lie between rows in memory.
struct TileShape {
  int rows = 0, columns = 0;
};
Value* zero_tile(Ir& ir, TileShape shape);
Value* load_tile(Ir& ir, TileShape shape, Value* address, Value* row_bytes);
void store_tile(Ir& ir, TileShape shape, Value* tile, Value* address, Value* row_bytes);
// c + a * b; the terms are pairs of bf16.
Value* multiply_tiles(Ir& ir, TileShape shape, int terms, Value* c, Value* a, Value* b);
// The instruction's rule: b if either is NaN, as vminps.
Value* fmin_second(Ir& ir, Value* a, Value* b);
Value* fmax_second(Ir& ir, Value* a, Value* b);
Value* icmp(Ir& ir, Compare c, Value* a, Value* b);
Value* fcmp(Ir& ir, Compare c, Value* a, Value* b);
inline Value* is_nan(Ir& ir, Value* a) { return fcmp(ir, Compare::unordered, a, a); }
// A scalar condition may choose between vectors.
Value* select(Ir& ir, Value* condition, Value* a, Value* b);
Value* smin(Ir& ir, Value* a, Value* b);
Value* smax(Ir& ir, Value* a, Value* b);

// Conversions; `to` has the value's lanes.
Value* sext(Ir& ir, Value* a, Type* to);
Value* zext(Ir& ir, Value* a, Type* to);
Value* truncate(Ir& ir, Value* a, Type* to);
// Sign-extends, truncates or returns a.
Value* resize_signed(Ir& ir, Value* a, Type* to);
Value* fp_extend(Ir& ir, Value* a, Type* to);
Value* fp_truncate(Ir& ir, Value* a, Type* to);
Value* signed_to_fp(Ir& ir, Value* a, Type* to);
Value* unsigned_to_fp(Ir& ir, Value* a, Type* to);
// Frozen: some value, not undefined behaviour, when out of range.
Value* fp_to_signed(Ir& ir, Value* a, Type* to);
Value* bitcast(Ir& ir, Value* a, Type* to);

// Vectors.
// Lanes below `count` true.
[[nodiscard]] Value* first_lanes(Ir& ir, int lanes, int count);
Value* broadcast(Ir& ir, Value* scalar, int lanes);
Value* extract(Ir& ir, Value* vector, int lane);
Value* insert(Ir& ir, Value* vector, Value* element, int lane);
Value* shuffle(Ir& ir, Value* a, Value* b, std::span<const int> mask);
// Low or high half of the lanes.
Value* half(Ir& ir, Value* vector, bool high);
Value* concat(Ir& ir, Value* low, Value* high);
// True if any lane of the i1 vector (or scalar) is.
Value* any(Ir& ir, Value* mask);

// Memory. Offsets count elements of `element` (scalar type).
Value* address(Ir& ir, Type* element, Value* base, Value* offset);
Value* load(Ir& ir, Type* t, Value* address, int alignment);
void store(Ir& ir, Value* v, Value* address, int alignment);
Value* masked_load(Ir& ir, Type* t, Value* address, int alignment, Value* mask, Value* otherwise);
void masked_store(Ir& ir, Value* v, Value* address, int alignment, Value* mask);
// Element i from base + offsets[i] (offsets i32 or i64 lanes).
Value* gather(Ir& ir, Type* t, Value* base, Value* offsets, int alignment, Value* mask,
              Value* otherwise);
void scatter(Ir& ir, Value* v, Value* base, Value* offsets, int alignment, Value* mask);
void atomic_add(Ir& ir, Value* address, Value* v, int alignment);
void prefetch(Ir& ir, Value* address);

// A call of a C function of scalars, all of `type`.
Value* call_scalar(Ir& ir, std::string_view name, Type* type, std::span<Value* const> arguments);

}  // namespace inkle::codegen::cpu
