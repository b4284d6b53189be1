// Turns reductions, scans and broadcasts over axes into shuffles, accesses of shared memory and
// barriers.
// clang-format off
//
//   %2 = reduce over t0, t1 of (%0) using s merge (%3: f32, %4: f32) { yield add(%3, %4) }
//   ->
//   %3 = add(%0, shuffle.exclusive_or(%0) by 16)          # and by 8, 4, 2, 1
//   if equal(index(t1), 0) { store s[t0] = %7 }
//   barrier block
//   %8 = load s[mod(t1,4)]
//   %9 = add(%8, shuffle.exclusive_or(%8) by 2)           # and by 1
//
// clang-format on
// Runs before place_barriers, which keeps a collective's scratch memory from being overwritten
// while it is read, and before indices are lowered. A vector region around a collective that
// crosses warps is split where all threads must come together.
#pragma once

#include "kernel/kernel.h"

namespace inkle::kernel {

void lower_collectives(Kernel& kernel, sym::Context& context);

}  // namespace inkle::kernel
