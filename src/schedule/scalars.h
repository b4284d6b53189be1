// Scalars that a kernel of one iteration computes for one other kernel are recomputed by every
// thread of that instead, and its other stores run afterwards: the step counter of an optimizer is
// read by all blocks and incremented by the last (last_block.h).
//
//   k0: n = n + 1; c = 1 - b^n        k1: p = p - g / (1 - b^(n + 1))
//   k1: p = p - g / c        becomes  k0: n = n + 1
#pragma once

#include <vector>

#include "schedule/scheduled.h"

namespace inkle::schedule {

// For steps whose schedules are those of a GPU, before they become tables.
void move_scalars(std::vector<Step>& steps, const loop::Program& program);

}  // namespace inkle::schedule
