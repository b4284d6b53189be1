// The pointwise kernel that makes the right operand of a matrix product becomes part of the
// product, where it widens what it reads: panels then are of the narrow type.
//
//   kernel: w = f32(q) * scale              kernel: panels of q -> p        (prepared)
//   matmul a w -> c                   ->    kernel: gemm a p, w[k,j] = f32(p[k,j]) * scale[j]
#pragma once

#include <optional>
#include <vector>

#include "schedule/scheduled.h"

namespace inkle::schedule {

struct ComputedOperand {
  Body body;                  // as GemmKernel::right; other buffers count in `buffers`
  loop::BufferId packed = 0;  // what panels are made of,
  Expr offset;                // from there: of batch, column and term
  std::vector<loop::BufferId> buffers;
  std::vector<Param> params;
};

// What `maker` stores in `operand`, whose element at each batch, term and column has the offset
// `element`. Nothing where one of its loads is not wider along a row than in memory, or is wanted
// at columns that are neither equal nor neighbours.
[[nodiscard]] std::optional<ComputedOperand> computed_operand(const KernelStep& maker,
                                                              loop::BufferId operand, Expr element,
                                                              const GemmKernel& g,
                                                              sym::Context& context);

}  // namespace inkle::schedule
