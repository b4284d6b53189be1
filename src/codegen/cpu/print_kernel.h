// Kernel IR -> LLVM IR. A value that differs between the lanes of a vector region is a vector, the
// others are scalars; everything stands where the kernel has it. What depends on no task is
// computed once, before the loop over the tasks.
#pragma once

#include "codegen/cpu/kernel_code.h"
#include "kernel/kernel.h"

namespace inkle::codegen::cpu {

// `arguments` are those of the function that `ir` has begun. Indices must be lowered.
EmittedKernel print_kernel(Ir& ir, const kernel::Kernel& kernel, sym::Context& context,
                           const Values& arguments);

}  // namespace inkle::codegen::cpu
