// Eviction hints to L2 of a GPU kernel's loads and stores.
//
// `recent`: a kernel of one pass over what the previous step has just written, part of which is
// still in L2. Loads bypass L1, and stores are evicted first, so that they do not displace what is
// still to be read (gelu after a GEMM of 50 MB: 29.8 us instead of 31.6; from its end on: 31.1).
//
// `lasting`: rows that are kept in registers, in a kernel that moves more bytes than L2 holds. On
// an H200, bf16, with L2 full of other results before: norms and softmax of 8192x8192 take 0.96 to
// 0.97 of the time, layer norm of two 16384x768 0.96, with a GEMM after them 0.98 to 0.99. Not for
// what the previous step wrote (1.01), unless it is more than twice L2 (134 MB: 0.98), nor for rows
// of which little is written (argmax: 1.14).
#pragma once

#include <vector>

#include "abi/target.h"
#include "schedule/scheduled.h"

namespace inkle::schedule {

// For steps in their final order, their bytes counted, whose schedules are those of a GPU.
void set_cache_hints(std::vector<Step>& steps, const loop::Program& program,
                     const abi::Target& device);

}  // namespace inkle::schedule
