// The recorded body of a loop nest: typed SSA over loads at symbolic indices. Written once by the
// define-by-run builder (loop/builder.h); analyses, fusion, text, hashing and code generation read
// it and never the lambda that made it.
//
// Semantics, the same for every code generator. Floats follow IEEE 754 with no contraction; f16
// and bf16 values only appear in load, cast, select, bitcast, constant and yields: arithmetic is
// in f32, f64, integers or bool. Integer arithmetic wraps.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "abi/dtype.h"
#include "sym/expr.h"

namespace inkle::loop {

using abi::DType;
using sym::Expr;

enum class Opcode : std::uint8_t {
  // Leaves.
  constant,  // immediate (floats in `real`, else `integer`)
  index,     // i64 value of the expression indices[0]
  load,      // buffer[indices]; operands: none, or {predicate, otherwise}: no access where false
  row,       // result number `integer` of an earlier reduction stage of the same kernel
  random,    // operands {seed, offset} i64: word offset % 4 of Philox-4x32-10 with key (seed low,
             // seed high) and counter (low and high of offset / 4, 0, 0), as i64 in [0, 2^32);
             // offsets are not negative
  // Structure.
  cast,      // to `dtype`: float->int truncates (saturation unspecified), to bool is != 0
  bitcast,   // same width
  select,    // {condition bool, a, b}
  indirect,  // {i64 value}: makes the index symbol indices[0] equal to it; checked 0 <= v < extent
  // Arithmetic. min and max propagate NaN; on bool, min is and, max is or.
  add,
  sub,
  mul,
  div,        // floats: IEEE; integers: truncated, division by zero fails the call
  floordiv,   // Python's //: floats as ATen's div(rounding_mode='floor'); integers likewise
  remainder,  // Python's %: sign of the divisor
  fmod,       // C's %: sign of the dividend
  neg,
  abs,
  min,
  max,
  fma,  // {a, b, c}: a * b + c, one rounding
  // Bits and logic (bool or integers). Shifts: count >= width gives 0 (or the sign), as ATen.
  bit_and,
  bit_or,
  bit_xor,
  bit_not,
  shift_left,
  shift_right,
  // Comparisons: bool; false on NaN but not_equal.
  equal,
  not_equal,
  less,
  less_equal,
  greater,
  greater_equal,
  // Rounding.
  floor,
  ceil,
  trunc,
  round_even,
  // Functions of f32 and f64; libm's special values.
  sqrt,
  rsqrt,
  exp,
  exp2,
  expm1,
  log,
  log2,
  log10,
  log1p,
  sin,
  cos,
  tan,
  asin,
  acos,
  atan,
  sinh,
  cosh,
  tanh,
  asinh,
  acosh,
  atanh,
  erf,
  erfc,
  erfinv,
  lgamma,
  digamma,
  pow,
  atan2,
  hypot,
  copysign,
  nextafter,
  is_nan,
  is_inf,
  sign_bit,
};

[[nodiscard]] std::string_view name_of(Opcode opcode);
[[nodiscard]] std::optional<Opcode> opcode_from_name(std::string_view name);
[[nodiscard]] std::size_t operand_count(Opcode opcode);  // of load: 0 (or 2 when predicated)
// How the operands' dtypes relate to the result's.
enum class OpcodeKind : std::uint8_t {
  leaf,        // no operands, or only those of a predicated load or random
  structure,   // cast, bitcast, select, indirect: rules of their own
  unary,       // result of the operand's dtype
  binary,      // both operands and the result of one dtype
  ternary,     // three operands and the result of one dtype
  test,        // one operand; result bool
  comparison,  // two operands of one dtype; result bool
};
[[nodiscard]] OpcodeKind kind_of(Opcode opcode);

// Position of an instruction in its body.
using Val = std::uint32_t;
using BufferId = std::uint32_t;

struct Instruction {
  Opcode opcode = Opcode::constant;
  DType dtype = DType::f32;  // of the result
  std::uint8_t operand_count = 0;
  std::array<Val, 3> operands{};
  BufferId buffer = 0;        // load
  std::vector<Expr> indices;  // load: logical indices, or one offset once linearised
  double real = 0;
  std::int64_t integer = 0;

  [[nodiscard]] std::span<const Val> used() const { return {operands.data(), operand_count}; }
  // Constants compare by their bits: 0.0 is not -0.0, and a NaN equals itself.
  friend bool operator==(const Instruction& a, const Instruction& b) {
    return a.opcode == b.opcode && a.dtype == b.dtype && a.operand_count == b.operand_count &&
           a.operands == b.operands && a.buffer == b.buffer && a.integer == b.integer &&
           std::bit_cast<std::uint64_t>(a.real) == std::bit_cast<std::uint64_t>(b.real) &&
           a.indices == b.indices;
  }
};

// Instructions in order of definition; `yields` are the values the nest stores or reduces.
struct Body {
  std::vector<Instruction> instructions;
  std::vector<Val> yields;

  [[nodiscard]] const Instruction& operator[](Val v) const { return instructions[v]; }
  friend bool operator==(const Body&, const Body&) = default;
};

}  // namespace inkle::loop
