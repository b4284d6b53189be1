// The pointwise work on the sums of matrix products, at one row and the columns of a vector region.
#pragma once

#include "kernel/builder.h"
#include "templates/gemm.h"

namespace inkle::templates {

class GemmEpilogue {
 public:
  GemmEpilogue(const GemmProblem& problem, const std::vector<kernel::MemoryId>& parameters,
               kernel::Builder& builder, Expr lane)
      : problem_(problem), parameters_(parameters), b_(builder), lane_(lane) {}

  // Stores what becomes of the sum; `column` counts on with the lane.
  void write(kernel::ValueId sum, Expr batch, Expr row, Expr column);

 private:
  [[nodiscard]] Expr at(Expr e) const;
  [[nodiscard]] kernel::Form form_of(Expr offset) const;
  [[nodiscard]] kernel::ValueId value(const loop::Instruction& i);
  [[nodiscard]] kernel::ValueId load(const loop::Instruction& i);

  const GemmProblem& problem_;
  const std::vector<kernel::MemoryId>& parameters_;
  kernel::Builder& b_;
  Expr lane_;
  kernel::ValueId sum_ = kernel::kNone;
  Expr batch_, row_, column_;
  kernel::Values values_;
};

}  // namespace inkle::templates
