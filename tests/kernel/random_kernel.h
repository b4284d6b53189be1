// Random kernels that are right by construction: whatever the schedule, they have no findings and
// one result.
#pragma once

#include <cstdint>
#include <memory>

#include "kernel/kernel.h"
#include "sym/expr.h"

namespace inkle::kernel {

struct RandomKernel {
  std::unique_ptr<sym::Context> context;  // owns the kernel's symbols
  Kernel kernel;
};

// Blocks of 4 to 96 threads with a list of values each: arithmetic, loads under masks, loops,
// vector regions, exchange through shared memory between barriers, collectives, shuffles, and at
// the end a sum over blocks by a ticket.
[[nodiscard]] RandomKernel random_kernel(std::uint64_t seed);

}  // namespace inkle::kernel
