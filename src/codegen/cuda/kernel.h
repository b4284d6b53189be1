// A loop kernel under a block schedule, as one function of CUDA C++.
#pragma once

#include <string>

#include "schedule/kernel.h"

namespace inkle::codegen::cuda {

struct KernelSource {
  std::string text;
  bool can_fail = false;
};

// The function `name`. Throws Unsupported for what this generator does not do.
[[nodiscard]] KernelSource write_kernel(const schedule::Kernel& kernel,
                                        const schedule::Schedule& schedule, const std::string& name,
                                        sym::Context& context);

}  // namespace inkle::codegen::cuda
