// In a joint forward-backward graph, decomposed attention (SDPA) becomes one op, and its gradient
// another:
//
//   %s = mul(bmm(%q, %kt), 0.1)                        %o, %m = attend(%q, t(%kt), %v, ..., 0.1)
//   %p = _softmax(%s, -1)                        =>    %dq, %dk, %dv =
//   %o = bmm(%p, %v)                                       attend_backward(%g, %q, t(%kt), %v, %o,
//   %dv = bmm(t(%p), %g)                                                   %m, ..., 0.1)
//   %dp = bmm(%g, t(%v))
//   %ds = mul(_softmax_backward_data(%dp, %p), 0.1)
//   %dq = bmm(%ds, k)
//   %dkt = bmm(t(%q), %ds)
//
// so that nothing of (row, column) in size is kept or even stored. With a mask added, selected or
// filled in, dropout of a seed, softmax in f32 between casts, views between any two of them, and
// gradients that are not wanted missing. Not where other nodes read the weights or their
// gradients. For the CPU: a GPU has no such op. Runs on joint graphs, once they are canonical,
// before masks are looked at.
#pragma once

#include <optional>

#include "graph/graph.h"
#include "passes/pass.h"

namespace inkle::passes {

[[nodiscard]] std::optional<graph::Graph> training_attention(const graph::Graph& graph,
                                                             PassContext& context);

}  // namespace inkle::passes
