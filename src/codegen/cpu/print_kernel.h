// Kernel IR -> LLVM IR. A value that differs between the lanes of a vector region is a vector, the
// others are scalars; everything stands where the kernel has it. What depends on no task is
// computed once, before the loop over the tasks.
#pragma once

#include "codegen/cpu/kernel_code.h"
#include "kernel/kernel.h"

namespace inkle::codegen::cpu {

struct PrintOptions {
  // LLVM is told how often loops run, where that is known. Else it takes loops in a branch that may
  // not run for rare, and loops behind a hot one for as hot: in a template, whose time is spent in
  // one loop of many, registers then go to the others.
  bool counts_loops = false;
};

// `arguments` are those of the function that `ir` has begun. Indices must be lowered.
EmittedKernel print_kernel(Ir& ir, const kernel::Kernel& kernel, sym::Context& context,
                           const Values& arguments, const PrintOptions& options = {});

}  // namespace inkle::codegen::cpu
