// Arithmetic on integers of any value, computed with the sizes of a call, which are checked, and
// given to kernels, whose arithmetic wraps around and divides by anything.
//
//   where n   kernel k0(p0, p1; s0), index(mod(s0+1,5))   ->   kernel k0(p0, p1; s0), index(s0)
//                                                              launched with mod(n+1,5)
#pragma once

#include <vector>

#include "schedule/scheduled.h"

namespace inkle::schedule {

// In kernels of loops, what is computed of sizes alone, and of one at least that may have more than
// 48 bits, becomes a size of the kernel. Sizes of tensors have fewer.
void pass_integers(std::vector<Step>& steps, sym::Context& context);

}  // namespace inkle::schedule
