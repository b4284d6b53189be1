// A line about a tensor's contents.
#pragma once

#include <string>

#include "frontend/pt2/tensor_data.h"

namespace inkle::cli {

// "f32[2,3] mean 0.1 min -1 max 2 first 0.5 0.25 ..."; complex numbers and the like only as a type.
[[nodiscard]] std::string summary(const frontend::pt2::TensorData& tensor);

// How `found` differs from what is wanted by more than a part of its largest magnitude, "" if it
// does not. UserError for dtypes whose elements are not numbers here.
[[nodiscard]] std::string difference(const frontend::pt2::TensorData& found,
                                     const frontend::pt2::TensorData& wanted, double tolerance);

}  // namespace inkle::cli
