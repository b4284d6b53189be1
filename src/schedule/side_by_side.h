// Horizontal fusion of unlike kernels: small ones that do not depend on each other share a
// launch, each block of which runs one of them. Equal kernels are in a table by then (combine.h).
//
// clang-format off
//   k0(q, q')   256 blocks
//   k1(k, k')    64 blocks    becomes    k0(q, q', k, k') { the first 256 blocks } beside { 64 }
// clang-format on
#pragma once

#include "abi/target.h"
#include "schedule/scheduled.h"

namespace inkle::schedule {

// For a device whose kernels run as blocks, when steps are final. A step that joins an earlier one
// moves to its place, as long as peak working memory does not grow.
void place_side_by_side(ScheduledProgram& scheduled, const abi::Target& device);

}  // namespace inkle::schedule
