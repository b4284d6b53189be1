// Products of one matrix by several weights become one product by all of them side by side.
//
//   %0 = addmm(%b0, %x, t(%w0))        %0 = addmm(cat([%b0, %b1]), %x, t(cat([%w0, %w1])))
//   %1 = addmm(%b1, %x, t(%w1))   =>   %1 = slice(%0, 1, 0, n0)
//                                      %2 = slice(%0, 1, n0, n0 + n1)
//
// The weights are parameters, so that what is put together is made once, and the parts are read as
// they lie. Runs only where a machine's costs are given (Options::products): a call of the library
// that is saved must be worth something beside the products' own time, as each weight is kept
// twice. Not where a product's result goes into an activation or a sum that the library may do at
// once. Last of all, so that equal operands are one value.
#pragma once

#include "passes/pass.h"

namespace inkle::passes {

std::optional<graph::Graph> merge_products(const graph::Graph& graph, PassContext& context);

}  // namespace inkle::passes
