// Chooses the strides of every buffer that has none: dense, in the order of dimensions that its
// producer and consumers want. Inputs, outputs and operands of calls to eager are fixed already.
//
// - convolutions want channels last on both sides, and pointwise nests pass that order on (of f32
//   and f64 on a GPU: the order that eager has);
// - products want dimensions that they take for one next to each other;
// - attention writes (batch, row, head, feature), so that joining the heads is free;
// - all else is row-major.
// Runs after inlining (copies of views have vanished) and before any access is linearised.
#pragma once

#include "loop/program.h"

namespace inkle::schedule {

// `weights_channels_last`: gradients of a convolution's weights of f16 and bf16 have channels last,
// too.
void choose_layouts(loop::Program& program, bool weights_channels_last);

// Makes every operand of a matmul, a convolution or attention one that can be read in place:
// a pure copy that stands before it is skipped where the original has linear offsets, and a copy
// is put before it where it has not (or, for a convolution, where channels are not last).
// `needs_matrices`: what a product reads is a matrix (is_matrix), or is copied to be one.
void settle_operands(loop::Program& program, bool needs_matrices);

}  // namespace inkle::schedule
