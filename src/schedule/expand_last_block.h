// Kernels with a last-block reduction: the last block to finish, of all or of a strip
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
// and the block that began last spins until all words are set: no block waits for its own stores.
#pragma once

#include "schedule/expand_blocks.h"

namespace inkle::schedule::expansion {

// `first`: of the kernel's stages, with the parameters declared. The thread axes are those
// from which the thread index of every part can be computed (declare_threads). `block`: as
// BlockExpansion::block.
void expand_last_block(Expansion& first, const LastBlock& last_block, Expr block = {});

// How the blocks of a kernel run the parts.
[[nodiscard]] std::vector<BlockSchedule> last_block_parts(const LastBlock& last_block,
                                                          const BlockSchedule& kernel);

}  // namespace inkle::schedule::expansion
