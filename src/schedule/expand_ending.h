// Kernels with an ending, a last-block reduction: the last block to finish, of all or of a strip
// of columns, runs it.
//
//   grid g in n, thread t in 256 {
//     stages                                        # y[g] = ...
//     barrier block
//     if equal(index(t), 0) { store last[0] = atomic.add counters[0] acquire_release gpu, 1:i32 }
//     barrier block
//     if equal(load last[0], index(n-1)) { reset the counter; parts }
//   }
//
// Where each block contributes one value, it is stored with a flag in one word of the workspace,
// and the block that began last waits for the words of all: no block waits for its stores.
#pragma once

#include "schedule/expand_blocks.h"

namespace inkle::schedule::expansion {

// `first`: of the kernel's stages, with the parameters declared. Threads are counted by axes of
// which the numbers of all parts' threads are made up (declare_threads). `block`: as
// BlockExpansion::block.
void expand_ending(Expansion& first, const Ending& ending, Expr block = {});

// How the blocks of a kernel run the parts.
[[nodiscard]] std::vector<BlockSchedule> ending_parts(const Ending& ending,
                                                      const BlockSchedule& kernel);

}  // namespace inkle::schedule::expansion
