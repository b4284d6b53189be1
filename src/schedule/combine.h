// Horizontal fusion: steps that run the same kernel on different tensors, and do not depend on each
// other, become one step over a table of instances: an op over lists of tensors, a whole optimizer.
//
//   kernel k0(p, g, m) over 768*768      kernel k0(p, g, m | p', g', m') over n
//   kernel k0'(p', g', m') over 768  ->    table of 2: n = 589824 | 768
//
// Kernels are the same if their text is, where the extent of a single flat loop may differ.
#pragma once

#include <vector>

#include "schedule/schedule.h"

namespace inkle::schedule {

// Lines of the user's program that a table tells in texts, of all that its kernel has.
inline constexpr std::size_t kMostSourcesOfTable = 16;

// Runs last, when steps are in order and have their bytes. A step that joins an earlier one moves
// to its place.
void combine(std::vector<Step>& steps, const loop::Program& program, const abi::Target& device);

}  // namespace inkle::schedule
