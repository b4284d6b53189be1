// Chooses the strides of every buffer that has none: dense, in the order of dimensions that its
// producer and consumers want. Inputs, outputs and operands of calls to eager are fixed already.
//
// - convolutions want channels last on both sides, and pointwise nests pass that order on (of
//   types that the library keeps in order: the order that eager has);
// - products want dimensions that they take for one next to each other;
// - attention writes (batch, row, head, feature), so that joining the heads is free;
// - all else is row-major.
// Runs after inlining (copies of views have vanished) and before any access is linearised.
#pragma once

#include "abi/target.h"
#include "loop/program.h"

namespace inkle::schedule {

void choose_layouts(loop::Program& program, const abi::ConvolutionLibrary& library);

// Makes every operand of a matmul, a convolution or attention one that can be read in place:
// a pure copy that stands before it is skipped where the original has linear offsets, and a copy
// is put before it where it has not (or, for a convolution, where channels are not last).
void settle_operands(loop::Program& program, const abi::Libraries& libraries);

}  // namespace inkle::schedule
