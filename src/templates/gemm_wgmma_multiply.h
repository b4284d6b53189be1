// The warpgroups of a kernel of gemm_wgmma that multiply. For gemm_wgmma*.cpp only.
#pragma once

#include "templates/gemm_wgmma_block.h"

namespace inkle::templates::wgmma {

class Multiplier : Operations {
 public:
  explicit Multiplier(Block& block)
      : Operations(block.builder()),
        block_(block),
        problem_(block.problem),
        config_(block.config) {}

  // The sums of a warpgroup's fragments. What lies behind the last row, column or term comes as
  // zeros.
  Values multiply(const Tile& tile);

 private:
  Values multiply_stage(const Tile& tile, Expr s, const Values& before);
  Values multiply_computed_stage(const Tile& tile, Expr s, const Values& before);
  ValueId computed(const Tile& tile, std::int32_t fragment, Expr stage_number, Expr s, Expr k);
  void release(Expr stage_number, ValueId condition);
  kernel::FragmentAccess tile_access(std::size_t operand, Expr stage_number, Expr first, Expr term);
  void wait_for_turn(const Tile& tile);

  Block& block_;
  const GemmProblem& problem_;
  const WgmmaConfig& config_;
};

}  // namespace inkle::templates::wgmma
