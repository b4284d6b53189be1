// Reductions in two orders of a program that is no gradient, as softmax(x, 1) beside x.mean(0):
// which sums over columns are added up in the kernel that reduces the rows (sequential_rows.h).
//
// For the gradient of a norm it always pays off. Elsewhere a split may prevent another fusion of
// the rows, or use more memory. So each is scheduled both ways, and the cheaper one is taken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "abi/target.h"
#include "loop/program.h"
#include "schedule/scheduled.h"

namespace inkle::schedule {

// What a call of a program costs.
struct ProgramCost {
  std::size_t launches = 0;  // and library calls
  std::int64_t bytes = 0;    // moved
  std::int64_t peak = 0;     // of temporaries at once
};

[[nodiscard]] ProgramCost cost_of(const ScheduledProgram& scheduled);

// The rest of the passes, over a program some of whose sums are split; nothing if it has no steps.
using FinishSchedule = std::function<std::optional<ScheduledProgram>(
    loop::Program program, std::vector<loop::BufferId> column_parts)>;

// Splits the sums that then move fewer bytes, with no more launches and no higher peak memory.
// Returns the buffers of their partial sums.
[[nodiscard]] std::vector<loop::BufferId> choose_columns(loop::Program& program,
                                                         const abi::Target& device,
                                                         const FinishSchedule& finish);

}  // namespace inkle::schedule
