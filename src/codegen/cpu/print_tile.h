// Operations on the tile registers of a core (AMX) as LLVM IR.
#pragma once

#include "codegen/cpu/kernel_values.h"
#include "codegen/cpu/print_access.h"
#include "codegen/cpu/size_values.h"

namespace inkle::codegen::cpu {

void print_tile(Ir& ir, const kernel::Kernel& kernel, KernelValues& values, AccessPrinter& access,
                SizeValues& sizes, const kernel::Operation& op);

}  // namespace inkle::codegen::cpu
