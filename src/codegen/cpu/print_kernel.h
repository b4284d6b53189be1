// Kernel IR -> LLVM IR. A value that differs between the lanes of a vector region is a vector, the
// others are scalars; the order of operations is the kernel's. What depends on no task is
// hoisted out of the loop over the tasks.
#pragma once

#include "codegen/cpu/kernel_code.h"
#include "kernel/kernel.h"

namespace inkle::codegen::cpu {

struct PrintOptions {
  // Gives LLVM branch weights for loops of known trip count. Else LLVM takes loops in an unlikely
  // branch for cold, and loops after a hot one for as hot: in a template, whose time is spent in
  // one loop of many, the register allocator then favours the others.
  bool counts_loops = false;
};

// `arguments` are those of the function that `ir` has begun. Indices must be lowered.
EmittedKernel print_kernel(Ir& ir, const kernel::Kernel& kernel, sym::Context& context,
                           const Values& arguments, const PrintOptions& options = {});

}  // namespace inkle::codegen::cpu
