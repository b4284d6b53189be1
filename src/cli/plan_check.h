// Whether a plan that came from a file makes sense.
#pragma once

#include "abi/plan.h"

namespace inkle::cli {

// All that can be told without a call. Throws UserError, Unsupported.
void check_plan(const abi::Plan& plan);

}  // namespace inkle::cli
