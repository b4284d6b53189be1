// A line about a tensor's contents.
#pragma once

#include <string>

#include "frontend/pt2/tensor_data.h"

namespace inkle::cli {

// "f32[2,3] mean 0.1 min -1 max 2 first 0.5 0.25 ..."; complex numbers and the like only as a type.
[[nodiscard]] std::string summary(const frontend::pt2::TensorData& tensor);

}  // namespace inkle::cli
