// Attention as its template writes it, in the interpreter of kernels.
#pragma once

#include "codegen/cpu/kernel_fixture.h"

namespace inkle::codegen::cpu {

// Interprets the kernel for a target, before its passes and after: no access
// outside, no read of what nobody has written, no race between tasks, and results as machine code
// left them in `expected`.
void check_interpreted_attention(const Kernel& kernel, const Schedule& schedule,
                                 const abi::Target& target, const std::vector<Array>& arrays,
                                 const std::vector<std::int64_t>& sizes,
                                 const std::vector<Array>& expected);

}  // namespace inkle::codegen::cpu
