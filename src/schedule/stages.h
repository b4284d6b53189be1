// A fused group -> a loop kernel: members become stages, values between them become registers,
// rows, scratch arrays or buffers, and all accesses become linear offsets.
#pragma once

#include <functional>
#include <vector>

#include "loop/program.h"
#include "schedule/group.h"
#include "schedule/scheduled.h"

namespace inkle::schedule {

// `is_external` says of a buffer written in the group whether anything outside reads it. Layouts
// are decided. The kernel has no name yet; its loops are as the group's, neither ordered nor
// merged. `input_alignment`: bytes that callers align tensors to, at least. `associations`: of its
// reductions, where they are not free.
[[nodiscard]] KernelStep build_kernel(const Group& group, const loop::Program& program,
                                      const std::function<bool(loop::BufferId)>& is_external,
                                      std::int32_t input_alignment,
                                      const Associations& associations);

// Calls `f` for every mention of a parameter or scratch array; it may put another in its place.
void for_each_memory(LoopKernel& loops, const std::function<void(std::uint32_t&)>& f);

// Gives `to` the parameters of `from` that it lacks, by buffer; the number of each in `to`. Scratch
// arrays of `to` are numbered behind them.
[[nodiscard]] std::vector<std::uint32_t> add_parameters(KernelStep& to, const KernelStep& from);

// Collects kernel.sizes: symbols that the kernel uses but does not bind.
void collect_sizes(Kernel& kernel, sym::Context& context);

}  // namespace inkle::schedule
