// What a kernel has reported, as the error that the caller of a plan gets.
#pragma once

#include "abi/plan.h"

namespace inkle::runtime::common {

// `status` is not ok. Throws OutOfRange or UserError naming the step's place in the user's program,
// InternalError for a status that no kernel reports.
[[noreturn]] void throw_status(abi::KernelStatus status, const abi::Plan& plan,
                               const abi::PlanStep& step);

}  // namespace inkle::runtime::common
