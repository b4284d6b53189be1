// Reductions over axes, lowered: each step of their association as an exchange of lanes, of warps,
// of rows of a block, of blocks of a cluster. For lower_collectives*.cpp only.
#pragma once

#include "kernel/lower_collectives_emit.h"
#include "kernel/lower_collectives_scratch.h"

namespace inkle::kernel {

// What `states` are reduced to, in the region that is open.
Values lower_reduce(CollectiveEmitter& emit, CollectiveScratch& scratch,
                    const LoweredCollective& collective, const Values& states);

}  // namespace inkle::kernel
