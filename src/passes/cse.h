// Common subexpressions: nodes of one op with equal arguments become one, equal literals too.
//
//   %0: f32[8] = exp(%x)
//   %1: f32[8] = exp(%x)      =>   %0: f32[8] = exp(%x)
//   %2: f32[8] = add(%0, %1)       %1: f32[8] = add(%0, %0)
//
// Never merged: random nodes (two draws are two draws), effects, calls to eager, and nodes on both
// sides of an effect (it may have changed what they read). Two outputs that become one value stay
// in storages of their own: lowering copies one, so they are merged only where that is less than to
// compute it again, not of elementwise ops, creation ops and views. A result that must have certain
// strides gives them to the one that stays. Runs after canonicalise, which makes more nodes equal.
#pragma once

#include "passes/pass.h"

namespace inkle::passes {

std::optional<graph::Graph> cse(const graph::Graph& graph, PassContext& context);

}  // namespace inkle::passes
