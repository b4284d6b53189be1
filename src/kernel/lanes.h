// Which values of a kernel differ between the lanes of the vector region that they are in, and
// which lanes access memory together.
#pragma once

#include <vector>

#include "kernel/kernel.h"

namespace inkle::kernel {

// By value.
[[nodiscard]] std::vector<bool> varies_by_lane(const Kernel& kernel);

// The element's place in the memory, row-major with padding.
[[nodiscard]] Expr linear_index(const Kernel& kernel, const Access& access);

// Of a wide access of so many lanes to shared or global memory: elements of the widest aligned
// access that it can be made of; 1: none of several.
[[nodiscard]] int access_width(const Kernel& kernel, const Access& access, Expr lane, int lanes);

}  // namespace inkle::kernel
