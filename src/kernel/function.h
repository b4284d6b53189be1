// Functions that are no opcode of loop bodies: one row each, the only place that says what one is.
// Each printer has one fixed expansion for a name.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string_view>

#include "kernel/operation.h"
#include "loop/scalar.h"

namespace inkle::kernel {

struct FunctionRow {
  NamedFunction function;
  std::string_view name;
  int operands = 1;
  double (*meaning)(std::span<const double> operands) = nullptr;  // exact but for double's rounding
  // An expansion is right if it differs from the meaning by at most this much, relative to the
  // meaning or absolute, whichever is larger.
  double relative_error = 0;
  double absolute_error = 0;
  // Of functions whose operands and result are not all of one float type: what they take and give,
  // and the result to the bit, in place of a meaning.
  std::array<DType, 3> takes{};
  DType gives = DType::f32;
  loop::Scalar (*exact)(std::span<const loop::Scalar> operands) = nullptr;
};

// sum + a * b of pairs of bf16, as a machine's tiles do: the products of low halves are added up,
// those of high halves, then both, then `sum`, each step with one rounding; subnormals are 0.
[[nodiscard]] float add_products_of_tiles(float sum, std::span<const std::uint32_t> a,
                                          std::span<const std::uint32_t> b);

[[nodiscard]] std::span<const FunctionRow> functions();  // in order of the enumeration
[[nodiscard]] const FunctionRow& row_of(NamedFunction function);
[[nodiscard]] std::optional<NamedFunction> function_from_name(std::string_view name);

}  // namespace inkle::kernel
