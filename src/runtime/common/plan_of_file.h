// Whether a plan that came from a file makes sense.
#pragma once

#include "abi/plan.h"

namespace inkle::runtime::common {

// All that can be told without a call, on any machine. Throws UserError, Unsupported.
void check_plan_of_file(const abi::Plan& plan);

}  // namespace inkle::runtime::common
