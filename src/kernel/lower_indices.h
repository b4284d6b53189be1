// Index expressions become integer operations: accesses get linear offsets as operands, `index`
// operations their arithmetic, each part at the loop where its symbols are known.
//
//   load p0[768*i0+64*i1+l0] wide   ->   %a = mul 768, i0 (at i0) ... %b = add %a, mul 64, i1
//                                        load p0[%b] wide
//
// Bounds of loops become operands, too. `index` of a single symbol stays: it is the loop's
// variable. After this pass no expression is left but in what declares a symbol.
#pragma once

#include "kernel/kernel.h"

namespace inkle::kernel {

void lower_indices(Kernel& kernel, sym::Context& context);

// Whether e and all its parts are within 32 bits.
[[nodiscard]] bool fits32(Expr e);

}  // namespace inkle::kernel
