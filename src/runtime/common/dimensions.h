// Dimensions that several operands of a call step over together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace inkle::runtime::common {

struct Dimension {
  std::int64_t size = 1;
  std::vector<std::int64_t> strides;  // in elements, one an operand
};

// outer and inner as one dimension, if every operand steps over all of inner for one of outer.
bool merge_into(Dimension& inner, const Dimension& outer);

// Moves into `inner` each batch that merges with it and over which operand `shared` does not move.
void fold_shared(std::vector<Dimension>& batches, Dimension& inner, std::size_t shared);

// Merges batches with each other as far as they go, then sorts them, the longest last.
void merge_batches(std::vector<Dimension>& batches);

}  // namespace inkle::runtime::common
