// A scheduled loop kernel for a CPU -> kernel IR: stages, sequential loops and vectors become
// loops, vector regions and carried values; every association of a reduction is explicit.
//
//   for i0 in s0 { row r0 = reduce.sum i1 in 768 {...} }       lanes=16 unroll=4
//
//   task i0 in s0
//   vector l in 16 {
//     %s = for i in 0..768 step 64 carry ... { four accumulators of 16 lanes each }
//     %r = reduce over lanes ...
//     yield %r
//   }
#pragma once

#include <optional>

#include "abi/target.h"
#include "kernel/kernel.h"
#include "schedule/kernel.h"

namespace inkle::schedule {

// A measure of the body's work, in simple instructions.
[[nodiscard]] int weight_of(const loop::Body& body);

// `context` owns the kernel's symbols; new ones are added. The kernel must be a LoopKernel. Of
// `target` the bounds on registers are read (BlockRules); without one nothing is bounded.
[[nodiscard]] kernel::Kernel expand(const Kernel& scheduled, const Schedule& schedule,
                                    sym::Context& context, const abi::Target& target = {});

}  // namespace inkle::schedule
