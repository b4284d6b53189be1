// Which nodes of a joint graph run in one kernel, as far as can be told before they are lowered:
// those that neither a library call nor a sum over rows stands between.
#pragma once

#include <cstdint>
#include <vector>

#include "partition/problem.h"

namespace inkle::partition {

struct Groups {
  // The values of the forward that each group of the backward reads, once each.
  std::vector<std::vector<graph::ValueId>> reads;
  // By value of the forward: it is written to memory there whatever is kept, since a kernel other
  // than its own reads it.
  std::vector<bool> is_stored;
};

[[nodiscard]] Groups find_groups(const Problem& problem);

}  // namespace inkle::partition
