// What the kernels of a backward read for a choice of what is kept, and a better choice.
//
//   x1 = x0 + a1      norm(x1)        Each norm's gradient reads its x. The minimum cut (cut.h)
//   x2 = x1 + a2      norm(x2)        counts the bytes of a1, a2, ... once and computes x2 from x0,
//   x3 = x2 + a3      norm(x3)        a1 and a2: less to keep than x1, x2, x3. But each gradient is
//                                     a kernel of its own and would add all of them up anew.
//
// Here nodes of the backward that fuse are a group, and every group pays for the kept values that
// it reads, itself or through what it computes again. That is no minimum cut any more, so a start
// is made better one node at a time.
#pragma once

#include <vector>

#include "partition/problem.h"

namespace inkle::partition {

struct Chosen {
  std::vector<bool> again;  // by node
  double seconds = 0;       // of what depends on the choice
  bool fits = false;        // into Joint::most_bytes
};

// From `again`, one that takes at most as long and keeps no more than the limit if the start does.
// A few passes over the nodes, each of about linear time.
[[nodiscard]] Chosen refined(const Problem& problem, std::vector<bool> again);

}  // namespace inkle::partition
