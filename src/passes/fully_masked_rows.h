// Fully masked rows of attention, where a library runs it: its kernels give 0 there, decomposed
// attention gives NaN.
//
//   %0 = sdpa(%q, %k, %v, %mask, 0.0, false, 0.125, false, false)      the last: not safe
// becomes
//   %1 = where(amax(%mask, [-1], true) > -inf, %mask, nan)
//   %0 = sdpa(%q, %k, %v, %1, 0.0, false, 0.125, false, false)
//
// Runs only if asked for (Options::safe_attention). A mask of two finite numbers stays as it is.
#pragma once

#include <optional>

#include "graph/graph.h"
#include "passes/pass.h"

namespace inkle::passes {

[[nodiscard]] std::optional<graph::Graph> fully_masked_rows(const graph::Graph& graph,
                                                            PassContext& context);

}  // namespace inkle::passes
