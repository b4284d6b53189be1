// Marks scatters that may write into their base, so that a chain of n updates costs n elements and
// not n copies.
//
//   %0: f32[8] = index_put(%x, [%i], %a)         %0: f32[8] = index_put(%x, [%i], %a) in_place
//   %1: f32[8] = slice_scatter(%0, %b)     =>    %1: f32[8] = slice_scatter(%0, %b) in_place
//   %2: f32[8] = copy_(%x, %1)                   %2: f32[8] = copy_(%x, %1)
//
// The base is a value whose memory is not otherwise read from then on: the result of another node,
// or an input that the chain's end is copied into. The copy_ stays and finds nothing to copy. Runs
// last: the mark holds only for the order of nodes it was made for.
#pragma once

#include "passes/pass.h"

namespace inkle::passes {

std::optional<graph::Graph> reinplace(const graph::Graph& graph, PassContext& context);

}  // namespace inkle::passes
