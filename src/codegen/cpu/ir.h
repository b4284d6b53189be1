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
#include <string>
#include <string_view>
#include <vector>

namespace llvm {
class IRBuilderBase;
class Module;
class Type;
class Value;
}  // namespace llvm

namespace inkle::codegen::cpu {

using llvm::Type;
using llvm::Value;
using Values = std::vector<Value*>;

class Ir {
 public:
  explicit Ir(std::string_view module_name);
  ~Ir();
  Ir(const Ir&) = delete;
  Ir& operator=(const Ir&) = delete;

  [[nodiscard]] llvm::Module& module();
  // At the insertion point.
  [[nodiscard]] llvm::IRBuilderBase& builder();
  // Starts the kernel function void(ptr, ptr, ptr, i64, i64) and returns its arguments.
  Values begin_function(std::string_view name, std::string_view cpu, std::string_view features,
                        bool has_fma = true);
  void end_function();
  // Of the function's machine.
  [[nodiscard]] bool has_fma() const;
  [[nodiscard]] bool has_avx512() const;

  [[nodiscard]] Type* integer_type(int bits, int lanes = 1);
  [[nodiscard]] Type* f16(int lanes = 1);
  [[nodiscard]] Type* f32(int lanes = 1);
  [[nodiscard]] Type* f64(int lanes = 1);
  [[nodiscard]] Type* pointer();
  [[nodiscard]] Value* i64(std::int64_t value);

  // Control flow. The current depth is the number of loops around the insertion point.
  [[nodiscard]] int depth() const;
  // Runs `emit` at depth d: in the preheader of the loop that leads from depth d to d + 1;
  // d == depth() is the insertion point.
  Value* at_depth(int d, const std::function<Value*()>& emit);

  using LoopBody = std::function<Values(Value* i, const Values& carried)>;
  // for (i = begin; i < end; i += step) carried = body(i, carried); returns the last `carried`.
  struct LoopFacts {
    bool at_least_once = false;  // begin < end
    std::int64_t expected = 0;   // iterations, as branch weights; 0: LLVM guesses
  };
  Values loop(Value* begin, Value* end, Value* step, Values carried, const LoopFacts& facts,
              const LoopBody& body);
  // Both sides yield values of the same types; allowed at any insertion point. Neither side may
  // hoist out of the branch what must not run when the side does not.
  Values branch(Value* condition, bool likely, const std::function<Values()>& then,
                const std::function<Values()>& otherwise);

  // Text of the module.
  [[nodiscard]] std::string text();
  // Empty, or what LLVM's verifier finds wrong.
  [[nodiscard]] std::string verify();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// --- Types and constants, of any function

[[nodiscard]] Type* type_of(Value* v);
[[nodiscard]] int lanes_of(Type* t);
[[nodiscard]] inline int lanes_of(Value* v) { return lanes_of(type_of(v)); }
[[nodiscard]] Type* with_lanes(Type* t, int lanes);
[[nodiscard]] inline Type* element_of(Type* t) { return with_lanes(t, 1); }
[[nodiscard]] int bits_of(Type* t);    // of an element
[[nodiscard]] bool is_float(Type* t);  // of an element
// The integer type of the same shape and width.
[[nodiscard]] Type* as_integer(Type* t);

// Constants, splat to the type's lanes.
[[nodiscard]] Value* integer(Type* t, std::int64_t value);
[[nodiscard]] Value* real(Type* t, double value);
// A float with these bits (of the element).
[[nodiscard]] Value* real_bits(Type* t, std::uint64_t bits);
[[nodiscard]] Value* zero(Type* t);
[[nodiscard]] Value* poison(Type* t);
// <0, step, 2*step, ...>
[[nodiscard]] Value* iota(Type* vector, std::int64_t step = 1);
// If v is a constant integer (scalar).
[[nodiscard]] bool constant_integer(Value* v, std::int64_t& out);

}  // namespace inkle::codegen::cpu
