// A thin layer over LLVM's IRBuilder: the vocabulary in which this folder writes code. It keeps
// LLVM's headers out of all files but two, knows nothing of kernels, and adds what LLVM's builder
// lacks: loops with carried values, and emission at an outer loop's depth (hoisting by
// construction, so that no optimiser has to find it).
//
// A type or value has `lanes`: 1 is a scalar, more is a fixed vector. Binary operations need equal
// types; constants are splat to the lanes asked for. No fast-math flag is ever set.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace llvm {
class BasicBlock;
class Function;
class Instruction;
class Module;
class Type;
class Value;
}  // namespace llvm

namespace inkle::codegen::cpu {

using llvm::Type;
using llvm::Value;
using Values = std::vector<Value*>;

// Of floats: ordered, but `ne` (true on NaN) and `unordered`. Of integers: signed, or unsigned u*.
enum class Compare : std::uint8_t { eq, ne, lt, le, gt, ge, ult, ule, ugt, uge, unordered };

class Ir {
 public:
  explicit Ir(std::string_view module_name);
  ~Ir();
  Ir(const Ir&) = delete;
  Ir& operator=(const Ir&) = delete;

  [[nodiscard]] llvm::Module& module();
  // Starts the kernel function void(ptr, ptr, ptr, i64, i64) and returns its arguments.
  Values begin_function(std::string_view name, std::string_view cpu, std::string_view features,
                        bool has_fma = true);
  void end_function();

  // Types.
  [[nodiscard]] Type* integer_type(int bits, int lanes = 1);
  [[nodiscard]] Type* f16(int lanes = 1);
  [[nodiscard]] Type* f32(int lanes = 1);
  [[nodiscard]] Type* f64(int lanes = 1);
  [[nodiscard]] Type* pointer();
  [[nodiscard]] static Type* type_of(Value* v);
  [[nodiscard]] static int lanes_of(Type* t);
  [[nodiscard]] static int lanes_of(Value* v) { return lanes_of(type_of(v)); }
  [[nodiscard]] static Type* with_lanes(Type* t, int lanes);
  [[nodiscard]] static Type* element_of(Type* t) { return with_lanes(t, 1); }
  [[nodiscard]] static int bits_of(Type* t);    // of an element
  [[nodiscard]] static bool is_float(Type* t);  // of an element
  // The integer type of the same shape and width.
  [[nodiscard]] Type* as_integer(Type* t);

  // Constants, splat to the type's lanes.
  [[nodiscard]] static Value* integer(Type* t, std::int64_t value);
  [[nodiscard]] static Value* real(Type* t, double value);
  // A float with these bits (of the element).
  [[nodiscard]] Value* real_bits(Type* t, std::uint64_t bits);
  [[nodiscard]] static Value* zero(Type* t);
  [[nodiscard]] static Value* poison(Type* t);
  [[nodiscard]] Value* i64(std::int64_t value);
  // <0, step, 2*step, ...>
  [[nodiscard]] Value* iota(Type* vector, std::int64_t step = 1);
  // Lanes below `count` true.
  [[nodiscard]] Value* first_lanes(int lanes, int count);
  // If v is a constant integer (scalar).
  [[nodiscard]] static bool constant_integer(Value* v, std::int64_t& out);

  // Arithmetic.
  Value* add(Value* a, Value* b);
  Value* sub(Value* a, Value* b);
  Value* mul(Value* a, Value* b);
  Value* sdiv(Value* a, Value* b);
  Value* srem(Value* a, Value* b);
  Value* udiv(Value* a, Value* b);
  Value* urem(Value* a, Value* b);
  Value* bit_and(Value* a, Value* b);
  Value* bit_or(Value* a, Value* b);
  Value* bit_xor(Value* a, Value* b);
  Value* bit_not(Value* a);
  Value* shl(Value* a, Value* b);
  Value* lshr(Value* a, Value* b);
  Value* ashr(Value* a, Value* b);
  Value* shl(Value* a, int count) { return shl(a, integer(type_of(a), count)); }
  Value* lshr(Value* a, int count) { return lshr(a, integer(type_of(a), count)); }
  Value* ashr(Value* a, int count) { return ashr(a, integer(type_of(a), count)); }
  Value* fadd(Value* a, Value* b);
  Value* fsub(Value* a, Value* b);
  Value* fmul(Value* a, Value* b);
  Value* fdiv(Value* a, Value* b);
  Value* fneg(Value* a);
  // Rounded once; without such an instruction through f64, of f64 in parts (within an ulp).
  Value* fma(Value* a, Value* b, Value* c);
  Value* fabs(Value* a);
  Value* sqrt(Value* a);
  Value* floor(Value* a);
  Value* ceil(Value* a);
  Value* trunc(Value* a);
  Value* round_even(Value* a);
  Value* copysign(Value* magnitude, Value* sign);
  // a * 2^floor(n) with one rounding for f32 vectors and |n| < 300, where the machine has an
  // instruction for it; else null.
  Value* scale_by_power(Value* a, Value* n);
  // table[i modulo the lanes] for f32 vectors of as many lanes as the table has entries, i integer
  // lanes of 32 bits, where the machine has an instruction for it; else null.
  Value* look_up(std::span<const double> table, Value* i);
  // 1 / a with a relative error of at most 2^-14 for f32 vectors, where the machine has an
  // instruction for it; else null.
  Value* approximate_reciprocal(Value* a);
  // A pair of bf16 in each lane of 32 bits: `low` and `high`, 16 lanes of f32, rounded; numbers
  // below the least normal one are 0. With AVX512-BF16 alone.
  Value* pack_bf16(Value* low, Value* high);
  // c + a * b of such pairs, the high products first, each rounded.
  Value* dot_bf16(Value* c, Value* a, Value* b);
  // The instruction's rule: b if either is NaN, as vminps.
  Value* fmin_second(Value* a, Value* b);
  Value* fmax_second(Value* a, Value* b);
  Value* icmp(Compare c, Value* a, Value* b);
  Value* fcmp(Compare c, Value* a, Value* b);
  Value* is_nan(Value* a) { return fcmp(Compare::unordered, a, a); }
  // A scalar condition may choose between vectors.
  Value* select(Value* condition, Value* a, Value* b);
  Value* smin(Value* a, Value* b);
  Value* smax(Value* a, Value* b);

  // Conversions; `to` has the value's lanes.
  Value* sext(Value* a, Type* to);
  Value* zext(Value* a, Type* to);
  Value* truncate(Value* a, Type* to);
  // Sign-extends, truncates or returns a.
  Value* resize_signed(Value* a, Type* to);
  Value* fp_extend(Value* a, Type* to);
  Value* fp_truncate(Value* a, Type* to);
  Value* signed_to_fp(Value* a, Type* to);
  Value* unsigned_to_fp(Value* a, Type* to);
  // Frozen: some value, not undefined behaviour, when out of range.
  Value* fp_to_signed(Value* a, Type* to);
  Value* bitcast(Value* a, Type* to);

  // Vectors.
  Value* broadcast(Value* scalar, int lanes);
  Value* extract(Value* vector, int lane);
  Value* insert(Value* vector, Value* element, int lane);
  Value* shuffle(Value* a, Value* b, std::span<const int> mask);
  // Low or high half of the lanes.
  Value* half(Value* vector, bool high);
  Value* concat(Value* low, Value* high);
  // True if any lane of the i1 vector (or scalar) is.
  Value* any(Value* mask);

  // Memory. Offsets count elements of `element` (scalar type).
  Value* address(Type* element, Value* base, Value* offset);
  Value* load(Type* t, Value* address, int alignment);
  void store(Value* v, Value* address, int alignment);
  Value* masked_load(Type* t, Value* address, int alignment, Value* mask, Value* otherwise);
  void masked_store(Value* v, Value* address, int alignment, Value* mask);
  // Element i from base + offsets[i] (offsets i32 or i64 lanes).
  Value* gather(Type* t, Value* base, Value* offsets, int alignment, Value* mask, Value* otherwise);
  void scatter(Value* v, Value* base, Value* offsets, int alignment, Value* mask);
  void atomic_add(Value* address, Value* v, int alignment);
  void prefetch(Value* address);

  // A call of a C function of scalars, all of `type`.
  Value* call_scalar(std::string_view name, Type* type, std::span<Value* const> arguments);

  // Control flow. The current depth is the number of loops around the point of emission.
  [[nodiscard]] int depth() const;
  // Runs `emit` at the place where values of depth d live: just before the loop that leads from
  // depth d to d + 1; d == depth() is the current place.
  Value* at_depth(int d, const std::function<Value*()>& emit);

  using LoopBody = std::function<Values(Value* i, const Values& carried)>;
  // for (i = begin; i < end; i += step) carried = body(i, carried); returns the last `carried`.
  struct LoopFacts {
    bool at_least_once = false;  // begin < end
    std::int64_t expected = 0;   // iterations, as branch weights; 0: LLVM guesses
  };
  Values loop(Value* begin, Value* end, Value* step, Values carried, const LoopFacts& facts,
              const LoopBody& body);
  // Both sides give as many values, of the same types; fine at any place. Neither side may hoist
  // beyond itself what must not run when it does not.
  Values branch(Value* condition, bool likely, const std::function<Values()>& then,
                const std::function<Values()>& otherwise);

  // Text of the module.
  [[nodiscard]] std::string text();
  // Empty, or what LLVM's verifier finds wrong.
  [[nodiscard]] std::string verify();

 private:
  Value* fma_in_double(Value* a, Value* b, Value* c);
  Value* fma_in_parts(Value* a, Value* b, Value* c);

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace inkle::codegen::cpu
