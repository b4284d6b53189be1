// Rewrites nodes whose row has a decomposition by the rows it is made of, and those again, until
// none is left.
//
//   %0: f32[2,8] = linear(%x, %w, %b)   =>   %0: f32[4,8] = t(%w)
//                                            %1: f32[2,8] = addmm(%b, %x, %0)
//
// Runs after the patterns, which match composite ops, and before the last clean-up.
#pragma once

#include "passes/pass.h"

namespace inkle::passes {

// Unsupported or UserError of a decomposition gets a note with the op and its source line.
std::optional<graph::Graph> decompose(const graph::Graph& graph, PassContext& context);

}  // namespace inkle::passes
