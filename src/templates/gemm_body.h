// Pointwise work of matrix products, at one row or term and the columns of a vector region, or at
// one element (no lane): on their sums, and on elements of an operand.
#pragma once

#include <utility>
#include <vector>

#include "kernel/builder.h"
#include "templates/gemm.h"

namespace inkle::templates {

// What the problem's variables are; `column` counts on with the lane. Those that a body does not
// ask for may be null.
struct GemmIndices {
  Expr batch, row, column, term;
};

// Gives a kernel the problem's name, sizes and sources, and declares its parameters.
[[nodiscard]] std::vector<kernel::MemoryId> begin_kernel(const GemmProblem& problem,
                                                         kernel::Builder& builder);

class GemmBody {
 public:
  GemmBody(const GemmProblem& problem, const std::vector<kernel::MemoryId>& parameters,
           kernel::Builder& builder, Expr lane)
      : problem_(problem), parameters_(parameters), b_(builder), lane_(lane) {}

  // The values of `body` there; `given` is row value 0.
  [[nodiscard]] kernel::Values run(const loop::Body& body, kernel::ValueId given,
                                   const GemmIndices& indices);
  // Stores what the epilogue makes of the sum.
  void store(kernel::ValueId sum, const GemmIndices& indices);
  // An expression of the problem there.
  [[nodiscard]] Expr at(Expr e, const GemmIndices& indices) const;

  bool constant_loads = false;  // by the read-only cache, where nothing writes it
  // Loads whose elements lie elsewhere already.
  std::vector<std::pair<loop::Val, kernel::Access>> loaded;

 private:
  [[nodiscard]] kernel::Form form_of(Expr offset) const;
  [[nodiscard]] kernel::ValueId value(const loop::Instruction& i);
  [[nodiscard]] kernel::ValueId load(const loop::Instruction& i);

  const GemmProblem& problem_;
  const std::vector<kernel::MemoryId>& parameters_;
  kernel::Builder& b_;
  Expr lane_;
  // Of the body that is written.
  kernel::ValueId given_ = kernel::kNone;
  GemmIndices indices_;
  kernel::Values values_;
};

}  // namespace inkle::templates
