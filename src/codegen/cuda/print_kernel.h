// Kernel IR -> CUDA C++. The order of operations is the kernel's; nothing is decided here.
#pragma once

#include <string>

#include "codegen/cuda/kernel.h"
#include "kernel/kernel.h"

namespace inkle::codegen::cuda {

// The function `name`; `note` is a comment before it. The kernel's collectives must be lowered.
[[nodiscard]] KernelSource print_kernel(const kernel::Kernel& kernel, const std::string& name,
                                        const std::string& note, sym::Context& context);

}  // namespace inkle::codegen::cuda
