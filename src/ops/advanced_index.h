// Advanced indexing as ATen defines it, for reads (index) and writes (index_put): index tensors
// broadcast to one shape, which replaces the indexed dimensions where they are adjacent and comes
// first where they are not.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ops/interpreter.h"
#include "ops/lowering.h"

namespace inkle::ops {

struct AdvancedIndex {
  std::vector<bool> is_indexed;  // by dimension of the indexed tensor
  Sizes shape;                   // of the index tensors, broadcast
  std::size_t first = 0;         // where `shape` stands in the result

  // Sizes of what an indexed read of a tensor of `sizes` gives.
  [[nodiscard]] Sizes result_sizes(const Sizes& sizes) const;
  // Indices of the indexed tensor (of `sizes`) for indices of the result.
  [[nodiscard]] std::vector<Expr> source_indices(const Lowering& l, BodyBuilder& b,
                                                 const std::vector<const Tensor*>& indices,
                                                 const Sizes& sizes, Indices result) const;
};

// The plan for tensor argument 0 and the list of index tensors in argument `arg`. Masks (bool, u8)
// are Unsupported: their result's size depends on data.
[[nodiscard]] AdvancedIndex advanced_index_of(const graph::Inference& in, std::size_t arg);

// The same for values. UserError for an index out of range.
[[nodiscard]] std::vector<std::int64_t> reference_source_indices(
    const std::vector<const RefTensor*>& indices, const RefTensor& x,
    std::span<const std::int64_t> result);

}  // namespace inkle::ops
