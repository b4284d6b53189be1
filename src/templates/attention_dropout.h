// The random words of attention dropout. For files of this folder only.
#pragma once

#include <array>
#include <vector>

#include "templates/attention.h"
#include "templates/lane_writer.h"

namespace inkle::templates {

// Columns that dropout draws random words for together (loop::attention_word).
inline constexpr std::int64_t kDrawn = 64;

class DropoutWriter {
 public:
  DropoutWriter(kernel::Builder& builder, LaneWriter& writer, int lanes,
                const AttentionProblem::Dropout& dropout)
      : b_(builder), w_(writer), lanes_(lanes), dropout_(dropout) {}
  // The keys of the rounds; before all loops. None are needed where all is dropped.
  void prepare(ValueId seed);
  // What weights of the columns [first, first + columns) are multiplied by, for a row of all heads
  // and batches: to to[0 ...], in whole blocks of kDrawn. `first` is a multiple of kDrawn.
  void draw_factors(MemoryId to, Expr row, Expr first, Expr columns);

 private:
  using Words = std::array<ValueId, 4>;
  void philox_round(Words& counter, const std::array<ValueId, 2>& key);

  kernel::Builder& b_;
  LaneWriter& w_;
  int lanes_;
  const AttentionProblem::Dropout& dropout_;
  std::vector<std::array<ValueId, 2>> round_keys_;
};

}  // namespace inkle::templates
