// Dimensions that several operands of a call share, with a stride for each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace inkle::runtime::common {

struct Dimension {
  std::int64_t size = 1;
  std::vector<std::int64_t> strides;  // in elements, one an operand
};

// outer and inner collapsed into one dimension, if they are contiguous in every operand.
bool merge_into(Dimension& inner, const Dimension& outer);

// Folds into `inner` each batch that collapses with it and along which `shared` has stride 0.
void fold_shared(std::vector<Dimension>& batches, Dimension& inner, std::size_t shared);

// Collapses batches with each other where possible, then sorts them, the longest last.
void merge_batches(std::vector<Dimension>& batches);

}  // namespace inkle::runtime::common
