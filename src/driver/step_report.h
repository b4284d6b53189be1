// What reports and dumps say of the steps of a program.
#pragma once

#include <string>

#include "abi/plan.h"
#include "driver/pipeline.h"
#include "schedule/scheduled.h"

namespace inkle::driver {

// Each step with its sources, each kernel with its schedule.
[[nodiscard]] std::string kernels_text(const schedule::ScheduledProgram& scheduled);

// Fills the report's steps, and what it counts of them.
void describe_steps(const schedule::ScheduledProgram& scheduled, const abi::Plan& plan,
                    Report& report);

}  // namespace inkle::driver
