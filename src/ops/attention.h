// What the rows of attention share.
#pragma once

#include "graph/inference.h"
#include "ops/lowering.h"

namespace inkle::ops {

// Argument `argument`, a mask of bools or floats of rank 2 or more, broadcasts from the right to
// the scores of q and k.
void check_attention_mask(graph::Inference& in, std::size_t argument, const graph::Type& q,
                          const graph::Type& k);

// The mask over (batch, head, row, column), size-1 and missing dimensions broadcast. q and k have
// rank 4; `rank` is what they had.
[[nodiscard]] Tensor attention_mask(Lowering& l, const Tensor& mask, const Tensor& q,
                                    const Tensor& k, std::size_t rank);

}  // namespace inkle::ops
