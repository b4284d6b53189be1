// Terms of a kernel of gemm_wgmma in parts: each warp stores its sums, and the last one to come
// adds those of all parts in their order, whoever came first. For gemm_wgmma*.cpp only.
#pragma once

#include "templates/gemm_wgmma_block.h"

namespace inkle::templates::wgmma {

class PartialSums : Operations {
 public:
  // Declares the tickets that warps draw, where there are parts.
  explicit PartialSums(Block& block);

  void store(const Tile& tile, const Values& sums);
  // Whether this warp is the last to come to its rows of a tile; then it sees what the others
  // wrote.
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
