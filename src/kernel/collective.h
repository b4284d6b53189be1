// How a collective over axes is carried out: by shuffles inside of a warp, through shared memory
// across warps, through the other blocks' shared memory across a cluster. Decided here once, for
// the verifier, for lower_collectives and for declarations of scratch memory.
#pragma once

#include <cstdint>
#include <vector>

#include "kernel/kernel.h"

namespace inkle::kernel {

// An axis of the threads of a block (or of the blocks of a cluster) with more than one of them.
struct ThreadAxis {
  AxisId axis = 0;
  AxisId last = 0;  // of those that count as one; else `axis`
  Expr variable;
  std::int64_t extent = 1;
  std::int64_t stride = 1;  // threads (blocks) from one of its positions to the next
};

// Thread or cluster axes of a launch, the last first; those of extent 1 are left out.
[[nodiscard]] std::vector<ThreadAxis> axes_of(const Kernel& kernel, AxisKind kind);

// Whether `left` participants of an axis are joined one after the other; two are joined alike
// either way.
[[nodiscard]] bool is_chain(const Collective& collective, std::int64_t left);
// Whether that is how a reduction over so many ends.
[[nodiscard]] bool ends_in_chain(const Collective& collective, std::int64_t extent);

// Whether the collective's axes of this kind count as one, row-major.
[[nodiscard]] bool counts_as_one(const Collective& collective, AxisKind kind);

struct CollectivePlan {
  // Axes that take part, the last first.
  std::vector<ThreadAxis> shuffled;  // by shuffles: all of their threads lie in one warp
  std::vector<ThreadAxis> stored;    // through shared memory
  std::vector<ThreadAxis> cluster;   // through the shared memory of other blocks
  std::int64_t width = 1;            // lanes that exchange among themselves
  // `stored` are whole warps of which all lanes take part: one lane stores for its warp.
  bool by_warps = false;
  std::int64_t threads = 1;  // of a block
  std::int64_t teams = 1;    // groups of a block's threads that take part together

  [[nodiscard]] bool in_warp() const { return stored.empty() && cluster.empty(); }
};
[[nodiscard]] CollectivePlan plan_collective(const Kernel& kernel, Op op,
                                             const Collective& collective);

// Elements of scratch memory that a collective over axes needs for each of its states, of which
// there is one for each of `lanes`. Scratch has so many elements in one dimension; or two halves of
// so many for a collective in a loop (double buffering): then no barrier need keep the next
// iteration from overwriting what this one still reads.
[[nodiscard]] std::int64_t scratch_places(const CollectivePlan& plan, Op op, std::int64_t lanes);

}  // namespace inkle::kernel
