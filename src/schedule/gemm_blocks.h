// Matrix products of bf16 as kernels of blocks on tensor cores that read shared memory (sm_90a).
// Both operands are copied to shared memory unpacked.
#pragma once

#include "abi/target.h"
#include "schedule/scheduled.h"

namespace inkle::schedule {

// With `all`, sums do not depend on what a device has: terms are not in parts.
void write_block_gemms(ScheduledProgram& scheduled, const abi::Target& device, bool all);

}  // namespace inkle::schedule
