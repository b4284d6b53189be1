// Tiles of elementwise kernels with transposed operands, on a GPU.
#pragma once

#include "abi/target.h"
#include "schedule/scheduled.h"

namespace inkle::schedule {

// What lies along the last outer loop but one, in bytes.
struct TransposedBytes {
  std::int64_t of_iteration = 0;
  std::int64_t narrowest = 16;  // element
  std::int64_t widest = 1;      // element, of what lies along either loop
};

// Makes the register tiles of threads in `blocks` tiles of a whole block, transposed through shared
// memory, where few elements are beyond the ends of the last two outer loops and there are enough
// tiles.
void share_tile(BlockSchedule& blocks, const LoopKernel& loops, const TransposedBytes& transposed,
                const abi::Target& device);

}  // namespace inkle::schedule
