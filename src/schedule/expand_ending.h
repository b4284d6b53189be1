// Kernels with an ending: what remains to be done is done by the last block that is through, of all
// or of a strip of columns.
//
//   grid g in n, thread t in 256 {
//     stages                                        # y[g] = ...
//     barrier block
//     if equal(index(t), 0) { store last[0] = atomic.add counters[0] acquire_release gpu, 1:i32 }
//     barrier block
//     if equal(load last[0], index(n-1)) { reset the counter; parts }
//   }
//
// Where each block has one number to hand over, it stands with a mark in one word of the workspace,
// and the block that has begun last waits for the words of all: no block waits for its stores.
#pragma once

#include "schedule/expand_blocks.h"

namespace inkle::schedule::expansion {

// `first`: of the kernel's stages, with the parameters declared. Nobody calls it for code yet:
// knows() names no kernel with an ending, and the axes of threads stand before those of the grid,
// which the verifier refuses.
void expand_ending(Expansion& first);

}  // namespace inkle::schedule::expansion
