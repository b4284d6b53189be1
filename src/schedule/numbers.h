// What tells apart the random words of one seed, given to kernels at run time: those that draw the
// same way, a dropout a layer, are then one kernel.
//
//   kernel k0(p0, p1), index(1099511627776+i0)   ->   kernel k0(p0, p1; s0), index(s0+i0)
//   kernel k1(p0, p1), index(2199023255552+i0)        launched with 1 << 40, and with 2 << 40
#pragma once

#include <vector>

#include "schedule/scheduled.h"

namespace inkle::schedule {

// Multiples of 2^32, which count no element of a tensor, that are added to positions become sizes
// of their kernels.
void pass_numbers(std::vector<Step>& steps, sym::Context& context);

}  // namespace inkle::schedule
