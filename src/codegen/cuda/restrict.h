// Which pointers of a kernel may be __restrict__.
#pragma once

#include <vector>

#include "kernel/kernel.h"

namespace inkle::codegen::cuda {

// For each parameter. A compiler takes it that nothing but a __restrict__ pointer reaches the
// memory behind it, so that it moves reads across barriers and fences, before which other threads
// may write there.
[[nodiscard]] std::vector<bool> restrict_parameters(const kernel::Kernel& kernel);

}  // namespace inkle::codegen::cuda
