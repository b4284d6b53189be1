// A loop kernel under a block schedule, as one function of CUDA C++.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "abi/target.h"
#include "kernel/passes.h"
#include "schedule/kernel.h"

namespace inkle::codegen::cuda {

struct KernelSource {
  std::string text;
  bool can_fail = false;
  std::int64_t shared_bytes = 0;     // dynamic shared memory of a block
  sym::Expr workspace_bytes;         // in terms of the kernel's sizes; constant 0: none
  std::vector<std::string> helpers;  // before it, beside the prelude; each once in a program
  std::string kernel;                // text of the kernel IR that it was printed from
};

// The function `name`; KernelSource::kernel is filled if it `keeps_kernel`. Throws Unsupported for
// what has no CUDA kernel.
[[nodiscard]] KernelSource write_kernel(const schedule::Kernel& kernel,
                                        const schedule::Schedule& schedule, const std::string& name,
                                        sym::Context& context, const abi::Target& target,
                                        const kernel::PassOptions& passes = {},
                                        bool keeps_kernel = true);

}  // namespace inkle::codegen::cuda
