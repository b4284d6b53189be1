// Which block schedules a kernel can run under.
#pragma once

#include <cstdint>
#include <string>

#include "abi/target.h"
#include "schedule/kernel.h"

namespace inkle::schedule {

// Shared memory of a block for values that its rows pass from stage to stage, in bytes.
inline constexpr std::int64_t kMostScratch = 48 << 10;
// Of a thread that has a row for itself, in elements.
inline constexpr std::int64_t kThreadScratch = 64;

// Why the expansion does not support the kernel with these blocks; empty: it does.
[[nodiscard]] std::string objection(const Kernel& kernel, const BlockSchedule& blocks,
                                    sym::Context& context);

// `wanted`, or the first of these fallbacks that is legal: without clusters and without keeping
// rows, one element an access, a warp an iteration, one thread an iteration. Throws Unsupported,
// with the kernel's source lines in the user's program, where none is.
[[nodiscard]] BlockSchedule legal_blocks(const Kernel& kernel, const BlockSchedule& wanted,
                                         const abi::Target& device, sym::Context& context);

}  // namespace inkle::schedule
