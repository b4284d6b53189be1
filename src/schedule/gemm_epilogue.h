// The pointwise kernel behind a matrix product becomes the product's epilogue:
//
//   kernel: gemm a p -> c
//   kernel: out = silu(c) * up    ->    kernel: gemm a p, out = silu(sum) * up
#pragma once

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "schedule/scheduled.h"

namespace inkle::schedule {

// Loops over all elements of a tensor whose indices and extents are `levels`: the loops' variables
// in terms of the indices, row-major.
[[nodiscard]] std::optional<std::vector<std::pair<Expr, Expr>>> loops_over(
    std::span<const Dim> loops, std::vector<std::pair<Expr, Expr>> levels, sym::Context& context);

// Whether a step is a kernel of pointwise work alone, that overwrites what it stores.
[[nodiscard]] bool is_plain_pointwise(const KernelStep& step);

// `step` is a gemm whose first store is of its result, and whose last buffer the result is; `next`
// reads that, as `product_buffer`, and becomes part of `step`. With `is_only` the result has no
// other reader, and it is not stored. False, and nothing is changed, unless `next` computes each
// element from the element of the product at the same indices.
bool join_epilogue(const KernelStep& next, loop::BufferId product_buffer, bool is_only,
                   KernelStep& step, sym::Context& context);

}  // namespace inkle::schedule
