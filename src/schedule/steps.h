// Groups of nests become steps: kernels with their schedules, library calls, calls to eager.
#pragma once

#include <span>
#include <vector>

#include "schedule/epilogue.h"
#include "schedule/group.h"
#include "schedule/schedule.h"

namespace inkle::schedule {

// In the order of the groups. Unsupported for a contraction that is in neither a group of loops nor
// among the library's calls, and for a sort.
[[nodiscard]] std::vector<Step> build_steps(const loop::Program& program, const Options& options,
                                            ContractionSteps contractions,
                                            std::span<const Group> groups,
                                            const Associations& associations,
                                            UnsupportedNodes& found);

}  // namespace inkle::schedule
