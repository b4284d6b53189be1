// How contiguous a kernel's memory accesses are along each of its loops.
#pragma once

#include <vector>

#include "schedule/kernel.h"

namespace inkle::schedule {

// Offsets of memory accesses with their weight: a strided store costs more than a strided
// load, and an access at every point of inner loops more than one that happens once.
struct WeightedOffset {
  Expr offset;
  bool is_store = false;
  double weight = 0;
  std::uint32_t buffer = 0;
};

// Of buffers below `param_count`.
[[nodiscard]] std::vector<WeightedOffset> offsets_of(const Stage& stage, std::size_t param_count);
[[nodiscard]] std::vector<WeightedOffset> all_offsets(const LoopKernel& kernel,
                                                      std::size_t param_count);

// Unit strides and broadcasts are good, all else is bad.
[[nodiscard]] double density(const std::vector<WeightedOffset>& offsets, Expr variable);

}  // namespace inkle::schedule
