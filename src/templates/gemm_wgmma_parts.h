// Split-K of gemm_wgmma: each warp stores its partial sums, and the last warp to finish adds those
// of all parts in a fixed order, so that results are deterministic. For gemm_wgmma*.cpp only.
#pragma once

#include "templates/gemm_wgmma_block.h"

namespace inkle::templates::wgmma {

class PartialSums : Operations {
 public:
  // Declares the atomic counters that warps increment, where there are parts.
  explicit PartialSums(Block& block);

  void store(const Tile& tile, const Values& sums);
  // Whether this warp is the last to finish its rows of a tile; then the stores of the others are
  // visible to it.
  ValueId is_last(const Tile& tile);
  Values add(const Tile& tile);

 private:
  [[nodiscard]] Expr place(const Tile& tile, Expr part, std::int32_t fragment, Expr row,
                           Expr column) const;
  [[nodiscard]] MemoryId memory() const { return block_.parameters.at(*block_.problem.partials); }

  Block& block_;
  MemoryId tickets_ = 0;
};

}  // namespace inkle::templates::wgmma
