// Recomputes the weights of a group of rows, and the gradients of scores from those of weights.
// For files of this folder only.
#pragma once

#include "templates/attention_writer.h"

namespace inkle::templates {

// Rows of a product whose sums are few vectors wide.
inline constexpr int kMostRows = 12;

struct GradientBlocks {
  std::int64_t rows;    // of a block
  std::int64_t padded;  // in whole groups
  // Elements from a row of weights to the next: the rows of one column are not all in the same sets
  // of a cache, and the last group of columns does not read the next row.
  std::int64_t line;
};

[[nodiscard]] GradientBlocks gradient_blocks_of(const AttentionProblem& problem,
                                                const AttentionConfig& config);

class SlopeWriter : protected AttentionWriter {
 protected:
  SlopeWriter(const AttentionProblem& problem, const AttentionConfig& config, kernel::Kernel& made,
              sym::Context& context);
  ~SlopeWriter() = default;

  void find_arrays();
  // Scores become the weights that the values got, gradients of weights those of scores. Columns
  // that only rows of later groups see become 0, too. Gradients that are rounded are scaled, and
  // lie in `slope_columns_`, too, in pairs of columns a vector apart.
  void weigh(Expr first_row, Expr seen);
  // Of all rows of the block: weights and gradients of scores as pairs of rows, one below the
  // other. There are 0s behind the last row and the last column.
  void pair_rows();
  // Blocks of columns that lie as pairs.
  [[nodiscard]] Expr pair_blocks(Expr columns) const;

  GradientBlocks blocks_;
  Operand grad_;
  MemoryId gradients_ = kernel::kNone;
  MemoryId weights_ = kernel::kNone, slopes_ = kernel::kNone;
  // Rounded.
  MemoryId weight_rows_ = kernel::kNone, slope_rows_ = kernel::kNone;
  MemoryId slope_columns_ = kernel::kNone;
  // Of the block of columns and that of rows.
  Expr first_, count_;
  Expr first_row_, rows_;

 private:
  struct RowValues {
    ValueId centre, inverse, level;
  };

  // Columns that are written, in whole vectors or pairs of them.
  [[nodiscard]] Expr written() const;
  // Where undropped weights are once the dropped ones have taken the place of the scores.
  ValueId undropped(Expr row, Expr c);
  // Weights to the place of the scores; their gradients, and undropped weights, to be read again.
  // The sum of the products of both.
  ValueId weigh_scores(Expr row, Expr absolute, Expr limit, const RowValues& of);
  RowValues row_values(Expr row, Expr absolute);

  MemoryId factors_ = kernel::kNone;
};

}  // namespace inkle::templates
