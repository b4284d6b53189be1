// From a plan's matrix product to what the library runs: batch dimensions are folded into rows or
// merged, one becomes the library's batch, the rest are loops.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "abi/library_call.h"
#include "runtime/cuda/gemms.h"

namespace inkle::runtime::cuda {

struct GemmPlan {
  struct Loop {
    std::int64_t extent = 1;
    std::int64_t a = 0, b = 0, c = 0, d = 0;  // bytes from one iteration to the next
  };
  GemmShape shape;  // alignment: of offsets and strides alone, pointers not counted
  std::vector<Loop> loops;
  // Bytes from the first element of the buffer. `swapped`: a is the call's second operand and b its
  // first, as the result is stored by columns.
  std::int64_t a = 0, b = 0, c = 0, d = 0, bias = 0;
  bool swapped = false;
  bool is_empty = false;  // the result has no elements
  bool is_zero = false;   // nothing is summed: the result is zero
};

// Throws Unsupported if the library does not support the strides of the operands.
[[nodiscard]] GemmPlan plan_gemm(const abi::MatmulCall& call, std::span<const std::int64_t> slots);

// Rows of each block of a matrix product whose row stride is not aligned, which the library writes
// at a quarter of its speed: a block has rows of padded_row_bytes and is then copied to the output.
// 0: the product is computed as a whole.
inline constexpr std::int64_t kPaddedRowAlignment = 16;  // bytes
[[nodiscard]] std::int64_t padded_rows(const GemmPlan& plan);
[[nodiscard]] std::int64_t padded_row_bytes(const GemmPlan& plan);

// The operand of the call's `add` post-op, if it has one.
[[nodiscard]] const abi::Operand* residual_of(const abi::MatmulCall& call);

// Whether the library takes the call's types and post-ops: [bias] [add of a tensor of the result's
// type and size] [one activation]. Empty, or the reason.
[[nodiscard]] std::string why_not(const abi::MatmulCall& call);

}  // namespace inkle::runtime::cuda
