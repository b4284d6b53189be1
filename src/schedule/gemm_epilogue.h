// The pointwise kernel behind a matrix product becomes the product's epilogue:
//
//   kernel: gemm a p -> c
//   kernel: out = silu(c) * up    ->    kernel: gemm a p, out = silu(sum) * up
#pragma once

#include "schedule/scheduled.h"

namespace inkle::schedule {

// `step` is a gemm whose first store is of its result, and whose last buffer the result is; `next`
// reads that, as `product_buffer`, and becomes part of `step`. With `is_only` nobody else needs the
// result, and it is not stored. False, and nothing is changed, where `next` does other than compute
// each element from the element of the product at the same place.
bool join_epilogue(const KernelStep& next, loop::BufferId product_buffer, bool is_only,
                   KernelStep& step, sym::Context& context);

}  // namespace inkle::schedule
