// Loop order, merging and the choice of a schedule, once accesses are linear.
#pragma once

#include "abi/target.h"
#include "schedule/scheduled.h"

namespace inkle::schedule {

// Orders loops so that the last one accesses memory most densely, and merges neighbours that are
// linear in one index in every access: i, j with offset 768*i+j become one loop of extent I*768.
void order_and_merge_loops(LoopKernel& kernel, sym::Context& context);

// The model's schedule for this kernel on this device: loops, or blocks (blocks.h). May move the
// last outer loop into the stages (or back) so that the vectorised loop is where the accesses are
// dense.
[[nodiscard]] Schedule choose_schedule(Kernel& kernel, const abi::Target& device,
                                       sym::Context& context);

}  // namespace inkle::schedule
