// A loop kernel in the form that is emitted: every stage has at most one inner loop, what one stage
// passes to the next at the same indices is recomputed there (or kept, see keep.h) instead of
// being stored, and a maximum with the sum of exponentials below it is one reduction.
#pragma once

#include <vector>

#include "schedule/kernel.h"

namespace inkle::schedule {

// One of the reductions that a pass computes.
struct PreparedReduction {
  loop::ReduceOp reduce = loop::ReduceOp::sum;
  abi::DType accumulator = abi::DType::f32;
  std::uint32_t yield = 0;
  std::vector<std::uint32_t> rows;  // of its results
};

struct PreparedStage {
  Stage stage;                      // inner: at most one loop; equal extents have equal variables
  std::vector<std::uint32_t> rows;  // of a reduction's results
  // All reductions of this pass, over columns (the stage may store as well) or along a sequential
  // row.
  std::vector<PreparedReduction> reductions;
};

struct PreparedKernel {
  std::vector<PreparedStage> stages;
  std::vector<bool> scratch_used;  // scratch arrays that are still loaded
};

struct PrepareOptions {
  // One pass for the maximum and the sum, for rows that are not kept on chip.
  bool join_softmax = false;
  // One pass for neighbouring stages over the same columns that do not depend on each other.
  bool join_columns = false;
  // One pass for neighbouring sums of a row that do not depend on each other.
  bool join_rows = false;
};
[[nodiscard]] PreparedKernel prepare(const Kernel& kernel, const LoopKernel& loops,
                                     PrepareOptions options, sym::Context& context);

}  // namespace inkle::schedule
