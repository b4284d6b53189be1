#include "runtime/common/dimensions.h"

#include <algorithm>

namespace inkle::runtime::common {
namespace {

bool merge_two(std::vector<Dimension>& batches) {
  for (std::size_t i = 0; i < batches.size(); ++i) {
    for (std::size_t j = 0; j < batches.size(); ++j) {
      if (i == j || !merge_into(batches[j], batches[i])) continue;
      batches.erase(batches.begin() + static_cast<std::ptrdiff_t>(i));
      return true;
    }
  }
  return false;
}

}  // namespace

bool merge_into(Dimension& inner, const Dimension& outer) {
  if (inner.size == 1) {
    inner = outer;
    return true;
  }
  for (std::size_t i = 0; i < inner.strides.size(); ++i) {
    if (outer.strides[i] != inner.size * inner.strides[i]) return false;
  }
  inner.size *= outer.size;
  return true;
}

void fold_shared(std::vector<Dimension>& batches, Dimension& inner, std::size_t shared) {
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t i = batches.size(); i-- > 0;) {
      if (batches[i].strides[shared] != 0 || !merge_into(inner, batches[i])) continue;
      batches.erase(batches.begin() + static_cast<std::ptrdiff_t>(i));
      changed = true;
    }
  }
}

void merge_batches(std::vector<Dimension>& batches) {
  while (merge_two(batches)) {
  }
  std::stable_sort(batches.begin(), batches.end(),
                   [](const Dimension& a, const Dimension& b) { return a.size < b.size; });
}

}  // namespace inkle::runtime::common
