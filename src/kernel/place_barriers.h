// Places barriers between accesses of shared memory, and of global memory within a block, by
// different threads, of which one writes.
// clang-format off
//
//   store s[t] = %0; store y[t] = load s[31-t]   ->   store s[t] = %0; barrier block; store y[t] = load s[31-t]
//
// clang-format on
// A barrier stands as late as it may and is of the smallest scope that covers the threads
// concerned; there is none where one stands already, where indices and guards show that a thread
// meets its own elements alone, or that elements are never the same. A vector region without
// results is taken apart where a barrier must stand in it. Runs after lower_collectives, which
// places the barriers inside of a collective, and before indices are lowered.
//
// One store is taken to write an element once before others read it, and global memory to be
// written by one thread an element. Where one thread releases or acquires at gpu scope, it does so
// for its block: barriers stand between it and the others' accesses of global memory.
//
// A kernel is refused (Unsupported) where threads may meet and no barrier can stand: in control
// that varies among the threads, and in what a vector region nests. Left to the author are roles,
// what mbarriers order (memory of bulk copies and of wgmma), and parameters against others that
// they may alias; the interpreter finds the races of those.
#pragma once

#include "kernel/kernel.h"

namespace inkle::kernel {

void place_barriers(Kernel& kernel, sym::Context& context);

}  // namespace inkle::kernel
