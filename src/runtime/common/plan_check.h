// Plans come from files too: every reference in them is checked once, before anything is run.
#pragma once

#include "abi/plan.h"

namespace inkle::runtime::common {

// Every slot, buffer, argument, constant and kernel number is in range, and of a fitting kind.
// Throws UserError naming the plan and the place.
void check_references(const abi::Plan& plan);

}  // namespace inkle::runtime::common
