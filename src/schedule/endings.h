// Kernels that only finish what another has begun become its ending (kernel.h): the sum of the
// parts of a sum, what pointwise work follows on few numbers, the counters that a step of an
// optimizer raises. One launch instead of two; the parts are added in the same order.
//
//   k0(x, parts)                     k0(x, parts, y) { ... } then the last block { y = sum of parts
//   } k1(parts, y)             becomes
#pragma once

#include <vector>

#include "abi/target.h"
#include "schedule/scheduled.h"

namespace inkle::schedule {

// For steps whose schedules are those of a GPU, before they become tables.
void join_endings(std::vector<Step>& steps, const loop::Program& program,
                  const abi::Target& device);

}  // namespace inkle::schedule
