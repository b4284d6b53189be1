// What follows the sums of a kernel of gemm_wgmma: each warp has 16 rows of a fragment, in slices
// of columns; only stores are masked. For gemm_wgmma*.cpp only.
#pragma once

#include <functional>
#include <vector>

#include "templates/gemm_wgmma_block.h"

namespace inkle::templates::wgmma {

class Epilogue : Operations {
 public:
  // Declares the registers that loads of the epilogue are issued to ahead, where some are free.
  explicit Epilogue(Block& block);

  // What the first slices read, before anything is multiplied.
  void load_first(const Tile& tile);
  void finish(const Tile& tile, const Values& sums);

 private:
  void stage_slice(ValueId sums, Expr slice);
  void load_slice(const Tile& tile, std::int32_t fragment, Expr slice);
  void store_slice(const Tile& tile, std::int32_t fragment, Expr slice);
  void for_each_vector(const Tile& tile, std::int32_t fragment, Expr slice,
                       const std::function<void(Expr pass, Expr row, Expr column)>& body);
  void load_vector(const Tile& tile, Expr slice, Expr pass, Expr row, Expr column);
  void store_vector(const Tile& tile, std::int32_t fragment, Expr slice, Expr pass, Expr row,
                    Expr column);
  [[nodiscard]] std::int32_t slices() const { return config_.columns / config_.slice; }
  [[nodiscard]] kernel::Access ahead_of(MemoryId registers, Expr slice, Expr pass, Expr lane) const;

  struct Ahead {
    loop::Val load;
    MemoryId registers;  // [slice ahead][pass][lane]
  };
  Block& block_;
  const GemmProblem& problem_;
  const WgmmaConfig& config_;
  std::vector<Ahead> ahead_;
  std::int32_t slices_ahead_ = 0;
};

}  // namespace inkle::templates::wgmma
