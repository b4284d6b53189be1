// Plans of files, once more: what the runtime itself reads and writes for them lies in the memory
// that it has for it. What machine code does with the memory it is given is its own.
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
