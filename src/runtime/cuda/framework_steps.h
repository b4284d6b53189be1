// What of a plan for a GPU only a framework can do: known from the plan alone, before a call.
#pragma once

#include <string>
#include <vector>

#include "abi/plan.h"

namespace inkle::runtime::cuda {

// Each such step with the line that it comes from, "aten::svd (model.py:3)", "a convolution of f64
// (model.py:4)", once, in the plan's order. What depends on sizes, or on the library that is there
// (cuDNN may have no algorithm), shows when it runs.
[[nodiscard]] std::vector<std::string> framework_steps(const abi::Plan& plan);

}  // namespace inkle::runtime::cuda
