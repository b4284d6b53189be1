// Online softmax of the scores of a group of rows. For files of this folder only.
#pragma once

#include "templates/attention_writer.h"

namespace inkle::templates {

// Of the rows of q that a task has.
struct Rows {
  std::int64_t block;   // rows of a task
  int group;            // of them, those whose products registers hold
  std::int64_t padded;  // in whole groups
  int tiles = 0;        // of a group, one below the other
};

[[nodiscard]] Rows rows_of(const AttentionProblem& problem, const AttentionConfig& config);

// A block of columns: the first, and how many.
struct Columns {
  Expr first, count;
};

class SoftmaxWriter : protected AttentionWriter {
 protected:
  SoftmaxWriter(const AttentionProblem& problem, const AttentionConfig& config,
                kernel::Kernel& made, sym::Context& context);
  ~SoftmaxWriter() = default;

  void find_arrays();
  // Scores become weights; the maximum and sum of each row go along. `row` is the group's first.
  void softmax(Expr row, const Columns& columns);
  // The same, one step after the other for all rows of the group: what is one number of each row is
  // computed in vectors of rows, and no row waits for another.
  void softmax_of_tiles(Expr row, const Columns& columns);

  ValueId scaled(ValueId score);
  // Blocks of columns whose weights lie as pairs.
  [[nodiscard]] Expr pair_blocks(const Columns& columns) const;
  // Whether all columns of whole tiles are there, for all rows.
  [[nodiscard]] bool has_whole_columns() const;

  Rows rows_;
  bool one_block_;  // of columns, with tiles
  // Of a group, but for `maximum` and `sum` of all rows.
  MemoryId scores_ = kernel::kNone, weights_ = kernel::kNone, alpha_ = kernel::kNone;
  MemoryId maximum_ = kernel::kNone, sum_ = kernel::kNone;
  // Of the task.
  Expr first_row_, count_;

 private:
  // Of row r of the group, which is row `absolute` of q; the largest score.
  ValueId mask_scores(Expr r, Expr absolute, const Columns& columns);
  ValueId largest_of_tiles(Expr r, Expr absolute, const Columns& columns);
  // The scores of row r become weights; the sum of those without dropout.
  ValueId weigh(Expr r, ValueId centre, const Columns& columns);
  // Weights are of scaled scores. Without a mask their order is that of the scores, which need not
  // be stored again.
  [[nodiscard]] bool scales_late() const;
  // The greater one; a NaN is left out, as it shows in the weights.
  ValueId greater_of(ValueId a, ValueId b);

  MemoryId factors_ = kernel::kNone, centre_ = kernel::kNone, block_sum_ = kernel::kNone;
};

}  // namespace inkle::templates
