// The pointwise kernel that makes the left operand of a matrix product becomes part of the product,
// which computes elements on their way to the tensor cores:
//
//   kernel: a = silu(x) * scale[i]
//   matmul a w -> c                   ->    kernel: gemm x w, a[i,k] = silu(x[i,k]) * scale[i]
#pragma once

#include <optional>
#include <vector>

#include "schedule/scheduled.h"

namespace inkle::schedule {

struct LeftOperand {
  Body body;    // as GemmKernel::left; other buffers count in `buffers`
  View copied;  // what is copied in boxes: [batch, row, term]
  Expr offset;  // there, of batch, row and term
  std::vector<loop::BufferId> buffers;
  std::vector<Param> params;
};

// What `maker` stores in `operand`, whose element at each batch, row and term of `g` has the offset
// g.a. Nothing where not just one of its loads, of bf16, has an element for each of the operand.
[[nodiscard]] std::optional<LeftOperand> left_operand(const KernelStep& maker,
                                                      loop::BufferId operand, const GemmKernel& g,
                                                      sym::Context& context);

}  // namespace inkle::schedule
