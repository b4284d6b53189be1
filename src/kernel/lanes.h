// Which values of a kernel differ between the lanes of the vector region that they are in.
#pragma once

#include <vector>

#include "kernel/kernel.h"

namespace inkle::kernel {

// By value.
[[nodiscard]] std::vector<bool> varies_by_lane(const Kernel& kernel);

}  // namespace inkle::kernel
