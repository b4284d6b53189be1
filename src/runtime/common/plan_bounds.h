// Bounds checks of plans from files: every access of the runtime itself lies inside its buffer.
// Accesses by the plan's machine code are not checked.
#pragma once

#include <cstdint>
#include <span>

#include "abi/plan.h"
#include "runtime/common/plan_facts.h"

namespace inkle::runtime::common {

// For these values of the slots: every buffer lies in its root, every operand of a library call,
// copy and output in its buffer, and the sizes of all are such that memory may have. The plan's
// references have been checked. Throws UserError naming the plan and the place.
void check_bounds(const abi::Plan& plan, const PlanFacts& facts,
                  std::span<const std::int64_t> slots);

}  // namespace inkle::runtime::common
