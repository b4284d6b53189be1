// Folds the second stage of a split reduction into the first launch, as its last-block reduction
// (kernel.h): the last block to finish reduces the partial results. Likewise pointwise work on few
// elements after it, and the step counters of an optimizer. One launch instead of two; the parts
// are added in the same order.
//
// clang-format off
//   k0(x, parts)
//   k1(parts, y)      becomes      k0(x, parts, y) { ... } then the last block { y = sum of parts }
// clang-format on
#pragma once

#include <vector>

#include "abi/target.h"
#include "schedule/scheduled.h"

namespace inkle::schedule {

// For steps whose schedules are those of a GPU, before they become tables.
void fuse_last_blocks(std::vector<Step>& steps, const loop::Program& program,
                      const abi::Target& device);

}  // namespace inkle::schedule
