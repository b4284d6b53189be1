// A loop kernel in the form that is emitted: every stage has at most one inner loop, what one stage
// hands to the next at the same place is computed there again (or kept, see keep.h) instead of
// being stored, and a maximum with the sum of exponentials below it is one reduction.
#pragma once

#include <vector>

#include "schedule/kernel.h"

namespace inkle::codegen::cuda {

struct PreparedStage {
  schedule::Stage stage;            // inner: at most one loop; equal extents have equal variables
  std::vector<std::uint32_t> rows;  // of a reduction's results
};

struct PreparedKernel {
  std::vector<PreparedStage> stages;
  std::vector<bool> scratch_used;  // scratch arrays that are still loaded
};

// `join_softmax`: one pass for the maximum and the sum, for rows that are not kept on chip.
[[nodiscard]] PreparedKernel prepare(const schedule::Kernel& kernel,
                                     const schedule::LoopKernel& loops, bool join_softmax,
                                     sym::Context& context);

}  // namespace inkle::codegen::cuda
