// Products of attention in tile registers of a core (AMX). For files of this folder only.
#pragma once

#include "kernel/builder.h"
#include "templates/attention.h"

namespace inkle::templates {

// Rows, columns and pairs of a whole tile.
inline constexpr std::int64_t kTileSide = 16;
// Tiles of a row, of which two rows leave registers for the operands.
inline constexpr std::int64_t kTilesAcross = 2;

// to[to_row + r][c] = sum over pairs p in [0, pairs) of left[left_row + r][p] * right[p][c], for
// the rows of a group and c in [0, columns); added to what is there if `adds`. Pairs are whole
// tiles, and columns those of `to` that whole tiles have.
struct TileProduct {
  kernel::MemoryId left = kernel::kNone, right = kernel::kNone, to = kernel::kNone;
  Expr left_row, to_row;
  Expr pairs, columns;
  bool adds = false;
};

class TileMultiplier {
 public:
  // Groups are of `down` tiles of `rows` rows.
  TileMultiplier(kernel::Builder& builder, std::int64_t rows, std::int64_t down);
  // Outside of vector regions.
  void multiply(const TileProduct& product);

 private:
  void multiply_columns(const TileProduct& product, Expr column, std::int64_t across);
  kernel::FragmentAccess access(kernel::MemoryId memory, Expr row, Expr column, std::int64_t rows);
  kernel::ValueId load(kernel::Type type, kernel::MemoryId memory, Expr row, Expr column);

  kernel::Builder& b_;
  std::int64_t rows_, down_;
  kernel::Type sum_, left_, right_;
};

}  // namespace inkle::templates
