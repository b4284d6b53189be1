// The pointwise kernel that makes an operand of a matrix product becomes part of the product: of
// the right one, where it widens what it reads, and panels then are of the narrow type; of the left
// one, whose rows each task then computes, or whose elements are on their way to tensor cores.
//
//   kernel: w = f32(q) * scale              kernel: panels of q -> p        (prepared)
//   matmul a w -> c                   ->    kernel: gemm a p, w[k,j] = f32(p[k,j]) * scale[j]
//
//   kernel: a = silu(gate) * up
//   matmul a b -> c                   ->    kernel: gemm p, a[i,k] = silu(gate[i,k]) * up[i,k]
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

struct ComputedLeft {
  Body body;  // as GemmKernel::left; buffers count in `buffers`, of which there is one at least
  std::vector<loop::BufferId> buffers;
  std::vector<Param> params;
};

// What `maker` stores in `operand`, the product's left one, whose element at each batch, row and
// term has the offset g.a. Nothing where it is not pointwise, or has a load that is not contiguous
// along a row.
[[nodiscard]] std::optional<ComputedLeft> computed_left(const KernelStep& maker,
                                                        loop::BufferId operand, const GemmKernel& g,
                                                        sym::Context& context);

// The same where a device copies what one load, of bf16, has for each element: that is row value 0,
// and lies at `offset`. Nothing unless exactly one of its loads is such.
struct CopiedLeft {
  ComputedLeft computed;
  View copied;  // [batch, row, term]
  Expr offset;
};
[[nodiscard]] std::optional<CopiedLeft> copied_left(const KernelStep& maker, loop::BufferId operand,
                                                    const GemmKernel& g, sym::Context& context);

}  // namespace inkle::schedule
