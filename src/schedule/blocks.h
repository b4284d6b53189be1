// The schedule of a loop kernel on a GPU.
#pragma once

#include <cstdint>
#include <vector>

#include "abi/target.h"
#include "schedule/kernel.h"

namespace inkle::schedule {

// The model's choice, or what is legal near it (legal_blocks.h). May move an outer loop to the end,
// where lanes run along it.
[[nodiscard]] Schedule choose_blocks(Kernel& kernel, const abi::Target& device,
                                     sym::Context& context);

// Threads that share a row of a kernel with sequential rows, and of a block of such teams, where
// each element of the row has `sums` accumulators in its thread's registers
// (schedule/sequential_rows.h).
struct SequentialTeam {
  std::int32_t team = 32;
  std::int32_t threads = 256;
};
[[nodiscard]] SequentialTeam sequential_team(std::int64_t columns, std::int64_t sums,
                                             std::int32_t lanes, const abi::BlockRules& rules);

// Neighbours of the model's choice that are worth measuring: other numbers of threads in a block,
// of accesses of a thread, rows read once or twice. The loops do not change. Some may fail to
// compile.
[[nodiscard]] std::vector<BlockSchedule> candidate_blocks(const Kernel& kernel,
                                                          const BlockSchedule& chosen,
                                                          const abi::Target& device);

}  // namespace inkle::schedule
