// Dead code elimination: removes nodes none of whose results are used, and unused literals.
//
//   %0: f32[8] = exp(%x)
//   %1: f32[8] = neg(%x)      =>   %0: f32[8] = neg(%x)
//   return %1                      return %0
//
// Nodes with effects stay, calls to eager too: what the host's callable does is not known here.
// Random nodes may go: each carries its own seed and offset. Runs after every pass that leaves
// unused nodes behind.
#pragma once

#include "passes/pass.h"

namespace inkle::passes {

std::optional<graph::Graph> dce(const graph::Graph& graph, PassContext& context);

}  // namespace inkle::passes
