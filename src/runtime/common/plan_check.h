// Plans come from files too: every reference in them is checked once, before anything is run.
#pragma once

#include "abi/code.h"
#include "abi/plan.h"

namespace inkle::runtime::common {

// Every slot, buffer, argument, constant and kernel number is in range, and of a fitting kind.
// Throws UserError naming the plan and the place.
void check_references(const abi::Plan& plan);

// Throws Unsupported for a step that is made of steps of regions.
void refuse_nested(const abi::Plan& plan, const abi::PlanStep& step);

// The code has as many functions and constants as the plan, and each constant as many bytes as its
// elements take. Throws likewise; the plan's references have been checked.
void check_code(const abi::Plan& plan, const abi::Code& code);

}  // namespace inkle::runtime::common
