// In a joint forward-backward graph on a device whose host has attention with its gradient,
// decomposed attention (SDPA) becomes a call of it, and its gradient another:
//
//   %s = mul(bmm(%q, %kt), 0.1)                        %o, %m, .. = eager "flash"(%q, t(%kt), %v)
//   %p = _softmax(%s, -1)                        =>    %dq, %dk, %dv =
//   %o = bmm(%p, %v)                                       eager "flash backward"(%g, %q, t(%kt),
//   %dv = bmm(t(%p), %g)                                                    %v, %o, %m, ..)
//   %dp = bmm(%g, t(%v)) ...
//
// for the patterns of training_attention. The host chooses the call, if any (Options::attention).
// Its kernels draw dropout's random numbers; saved values let the backward draw them again. Masks
// that are proved neutral or causal are not passed; others become additive masks. For fully masked
// rows:
//
//   hidden by         in eager                             here
//   minus infinity    NaN, also the gradient of the value  NaN, also the gradients of query and key
//   a number put in   all columns alike                    the same; no gradient of query and key
//   a number added    all columns alike, as no score       the same, but that they have no part in
//                     counts beside it                     the gradient of the key
//
// Runs with training_attention.
#pragma once

#include <optional>

#include "graph/graph.h"
#include "passes/pass.h"

namespace inkle::passes {

[[nodiscard]] std::optional<graph::Graph> library_attention(const graph::Graph& graph,
                                                            PassContext& context);

}  // namespace inkle::passes
