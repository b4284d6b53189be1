// A loop kernel under a block schedule, as one function of CUDA C++.
#pragma once

#include <string>

#include "kernel/passes.h"
#include "schedule/kernel.h"

namespace inkle::codegen::cuda {

struct KernelSource {
  std::string text;
  bool can_fail = false;
  sym::Expr workspace_bytes;  // in terms of the kernel's sizes; constant 0: none
};

// The function `name`. Throws Unsupported for what this generator does not do.
[[nodiscard]] KernelSource write_kernel(const schedule::Kernel& kernel,
                                        const schedule::Schedule& schedule, const std::string& name,
                                        sym::Context& context, const kernel::PassFault& fault = {});

// How the blocks of a kernel run a part of its ending.
[[nodiscard]] schedule::BlockSchedule ending_blocks(const schedule::BlockSchedule& part,
                                                    const schedule::BlockSchedule& kernel,
                                                    bool by_strips);

}  // namespace inkle::codegen::cuda
