// What a scheduled program moves between memory and kernels, and the least that any schedule of it
// could: for reports.
#pragma once

#include <vector>

#include "schedule/scheduled.h"

namespace inkle::schedule {

// Bytes of one buffer that a step reads and writes, each element once: broadcasts, slices and
// gathers count what they touch, at most the whole buffer.
struct Traffic {
  loop::BufferId buffer = 0;
  Expr read;
  Expr written;
};
[[nodiscard]] std::vector<Traffic> traffic(const Step& step, const loop::Program& program);

// Fills Step::bytes.
void count_step_bytes(Step& step, const loop::Program& program);
// Fills bytes_moved and bytes_lower_bound. Steps that are prepared once count nothing.
void count_bytes(ScheduledProgram& scheduled);

}  // namespace inkle::schedule
