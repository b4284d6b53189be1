// Decomposes attention into matrix products and a softmax, for machines whose libraries lack it.
//
//   %0 = sdpa(%q, %k, %v, none, 0.0, true, 0.125)
// becomes
//   %1 = matmul(%q, transpose(%k)) * 0.125, minus infinity above the diagonal
//   %0 = matmul(_safe_softmax(%1), %v)
//
// Runs only if asked for (Options::split_attention): it stores a score for each pair of rows. After
// the rules about masks, before decompose.
#pragma once

#include <optional>

#include "graph/graph.h"
#include "passes/pass.h"

namespace inkle::passes {

[[nodiscard]] std::optional<graph::Graph> split_attention(const graph::Graph& graph,
                                                          PassContext& context);

}  // namespace inkle::passes
