// Hoists loop-invariant operations out of loops, and merges equal operations.
//
//   for i { %0 = load g[0]; %1 = exp(%0) ... }   ->   %0 = load g[0]; %1 = exp(%0); for i { ... }
//
// Runs before indices are lowered, so that an access still says what it depends on. Pure operations
// go as far out as their operands are defined. Loads, and what may report a failure, leave a loop
// only if it runs at least once, never a branch, and a load only if nothing in the loop writes its
// memory.
#pragma once

#include "kernel/kernel.h"

namespace inkle::kernel {

void hoist(Kernel& kernel);

}  // namespace inkle::kernel
