// What the kernels of matrix products share: parameters, the task's block of the result, its sums
// and its rows of the left operand on the stack, the epilogue. For files of this folder only.
#pragma once

#include <functional>
#include <vector>

#include "kernel/builder.h"
#include "templates/gemm_body.h"
#include "templates/gemm_kernel.h"
#include "templates/lane_writer.h"

namespace inkle::templates {

class GemmTask {
 protected:
  // Declares parameters and tasks.
  GemmTask(const GemmProblem& problem, const GemmConfig& config, GemmRows rows,
           kernel::Kernel& made, sym::Context& context);

  // On the stack.
  kernel::MemoryId declare(std::string name, DType dtype, std::int64_t rows, std::int64_t columns);

  // --- Control
  Expr number(std::int64_t v) { return b_.context().constant(v); }
  void in_lanes(const std::function<void()>& body);
  void loop(Expr begin, Expr end, std::int64_t step, const std::function<void(Expr)>& body);
  // `body` for the vectors at columns [begin, end) of a row, begin a multiple of the lanes. Lanes
  // at or beyond the end are masked, unless rows of `extent` elements have none.
  void in_vectors(Expr begin, Expr end, Expr extent, const std::function<void(Expr)>& body);

  // --- The left operand, as it lies or as it is computed. Its rows of terms [begin, end) are
  // packed as [row][term], rows behind the last repeat it, terms behind the last are 0.
  void declare_left();
  void pack_left(Expr begin, Expr end);

  // --- The result: what the epilogue makes of the sum at (row, column) of `sums_`, as the task's
  // element of that row and column.
  void store(Expr row, Expr column, Expr sum_row, Expr sum_column);

  Expr at(Expr e, Expr row, Expr column, Expr term) {
    return body().at(e, {batch_, row, column, term});
  }
  GemmBody body() { return GemmBody(problem_, parameters_, b_, lane_); }

  const GemmProblem& problem_;
  const GemmConfig& config_;
  GemmRows rows_;
  kernel::Builder b_;
  Expr zero_, lane_;
  std::vector<kernel::MemoryId> parameters_;
  kernel::MemoryId sums_ = kernel::kNone;
  kernel::MemoryId left_ = kernel::kNone;
  // Of the task.
  Expr batch_, first_row_, first_column_, row_count_, column_count_;

 private:
  [[nodiscard]] bool computes_left() const { return !problem_.left.instructions.empty(); }
  [[nodiscard]] bool has_pairs() const;
  // Of the row, the vector of terms or pairs at k; with `masked` zeros at and beyond `end`.
  kernel::ValueId left_vector(Expr row, Expr k, Expr end, bool masked);
  kernel::ValueId before(Expr end, Expr first, bool masked, DType dtype,
                         const std::function<kernel::ValueId()>& value);
  [[nodiscard]] kernel::ValueId lanes_before(Expr count);
};

}  // namespace inkle::templates
