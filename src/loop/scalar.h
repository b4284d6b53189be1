// Values of single elements: what each opcode means. The builder folds constants with it and the
// reference interpreter runs bodies with it, so that both agree to the bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "abi/dtype.h"
#include "loop/body.h"

namespace inkle::loop {

// A value of a computable dtype: floats in `real` (always exactly representable in the dtype), bool
// (0 or 1) and integers in `integer`.
struct Scalar {
  double real = 0;
  std::int64_t integer = 0;
};

[[nodiscard]] Scalar make_scalar(DType dtype, double value);        // rounds, truncates
[[nodiscard]] Scalar make_scalar(DType dtype, std::int64_t value);  // rounds, wraps
// Opcode::cast. To f16 and bf16 through f32, as ATen does. A float that does not fit the integer
// gives an unspecified value.
[[nodiscard]] Scalar convert(Scalar value, DType from, DType to);
[[nodiscard]] Scalar bit_convert(Scalar value, DType from, DType to);  // Opcode::bitcast
// True if every value of `from` is a value of `to`.
[[nodiscard]] bool is_lossless(DType from, DType to);

// Result of an opcode of kind unary, binary, ternary, test or comparison on operands of `dtype`.
// Functions are computed in double and rounded once. Integer division by zero throws UserError.
[[nodiscard]] Scalar evaluate(Opcode opcode, DType dtype, std::span<const Scalar> operands);
// The same where IEEE 754 or integer arithmetic leaves no choice; nullopt for functions whose last
// bit is a code generator's, and for integer division by zero.
[[nodiscard]] std::optional<Scalar> evaluate_exact(Opcode opcode, DType dtype,
                                                   std::span<const Scalar> operands);
[[nodiscard]] std::int64_t philox(std::int64_t seed, std::int64_t offset);  // Opcode::random
// 32 random bits for the weight of a row of attention at a column; `row` counts through batches,
// heads and rows. One run of Philox gives those of four columns, sixteen apart: the counter is
// {column / 64 * 16 + column % 16, row, number + 1}, so that no op of this seed that draws an
// element at a time has the same.
[[nodiscard]] std::int64_t attention_word(std::int64_t seed, std::int64_t number, std::int64_t row,
                                          std::int64_t column);
// Weights are kept whose 32 bits are at least this.
[[nodiscard]] std::int64_t dropped_below(double p);
[[nodiscard]] double dropout_scale(double p);  // of what is kept

// Elements in memory, `data` at the element.
[[nodiscard]] Scalar read_element(DType dtype, const std::byte* data);
void write_element(DType dtype, std::byte* data, Scalar value);

}  // namespace inkle::loop
