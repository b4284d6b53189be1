// A plan as text that parses back to the same plan, every field of it; to_string (abi/plan.h) is
// shorter and for reading only. Slots, buffers, kernels and constants are numbers.
//
//   plan name="add" slots=3
//   argument name="x" sizes=[0] strides=[1]
//   size result=0 op=size b=0 immediate=0
//   buffer name="x" kind=argument sizes=[0] strides=[1] bytes=2
//   step launch=(kernel=0 buffers=[0,1] extent=0) source="model.py:7"
//
// A field that has its default value is left out; one that is true is its name alone.
#pragma once

#include <string>
#include <string_view>

#include "abi/plan.h"

namespace inkle::abi {

[[nodiscard]] std::string print_plan(const Plan& plan);

// Throws UserError with the place in the text. What the numbers refer to is not looked at.
[[nodiscard]] Plan parse_plan(std::string_view text, std::string_view file);

}  // namespace inkle::abi
