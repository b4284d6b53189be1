// Loop kernels side by side in one launch: the first blocks run the body, those after them the
// next, each as in a launch of its own.
//
//   grid g in n+m, thread t in 128 {
//     if less(index(g), index(n)) {
//       b in 0..n-1 = bind(index(g)); ...       # the body, as block b of n
//     } else {
//       b in 0..m-1 = bind(index(g-n)); ...     # the other, as block b of m
//     }
//   }
#pragma once

#include "schedule/expand_blocks.h"

namespace inkle::schedule::expansion {

// `first`: of the kernel's body, with the parameters declared.
void expand_beside(Expansion& first);

}  // namespace inkle::schedule::expansion
