// Are the arguments of a call what the plan was made for?
#pragma once

#include <cstdint>
#include <span>

#include "abi/plan.h"
#include "abi/tensor_view.h"

namespace inkle::runtime::common {

// Dtype, device kind and rank. Throws UserError with the argument's name, what was expected and
// what came.
void check_type(const abi::PlanArgument& expected, const abi::TensorView& given);

// Sizes and strides, and that there is memory; a stride matters only where there is more than one
// element along it.
void check_geometry(const abi::PlanArgument& expected, const abi::TensorView& given,
                    std::span<const std::int64_t> slots);

[[nodiscard]] inline bool is_aligned(const void* data, std::int32_t alignment) {
  return reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(alignment) == 0;
}

}  // namespace inkle::runtime::common
