// Which values of a kernel differ between the lanes of the vector region that they are in, and
// which lanes access memory together.
#pragma once

#include <vector>

#include "kernel/kernel.h"

namespace inkle::kernel {

// By value.
[[nodiscard]] std::vector<bool> varies_by_lane(const Kernel& kernel);

// Of a wide access of a GPU with index expressions: so many of the `width` lanes (a power of two
// less where needed) are surely aligned to their bytes, or to 16, and are one access of the
// machine.
[[nodiscard]] std::int32_t aligned_lanes(const Kernel& kernel, const Access& access, Expr lane,
                                         std::int32_t width);

}  // namespace inkle::kernel
