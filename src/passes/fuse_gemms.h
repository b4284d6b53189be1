// Horizontal fusion: GEMMs of one matrix by several weights become one by the concatenated weights.
//
//   %0 = addmm(%b0, %x, t(%w0))        %0 = addmm(cat([%b0, %b1]), %x, t(cat([%w0, %w1])))
//   %1 = addmm(%b1, %x, t(%w1))   =>   %1 = slice(%0, 1, 0, n0)
//                                      %2 = slice(%0, 1, n0, n0 + n1)
//
// The weights are parameters, so that they are concatenated once, and the slices are views. Runs
// only where a machine's costs are given (Options::products): the library call that is saved must
// be worth something beside the GEMMs' own time, as each weight is stored twice. Not where a GEMM's
// result feeds an activation or a sum that the library may fuse. Runs last, so that equal operands
// are one value.
#pragma once

#include "passes/pass.h"

namespace inkle::passes {

std::optional<graph::Graph> fuse_gemms(const graph::Graph& graph, PassContext& context);

}  // namespace inkle::passes
