// The right operand of a matrix product in panels of columns, which a kernel of its own packs.
#pragma once

#include <vector>

#include "abi/target.h"
#include "schedule/scheduled.h"

namespace inkle::schedule {

// What panels are made of: its element of batch, column and term; and what else b is made of.
struct RightOperand {
  loop::BufferId buffer = 0;
  Expr offset;
  bool is_shared = true;  // one matrix for all batches, which is packed once
  std::vector<loop::BufferId> others;
  std::vector<Param> params;
};
[[nodiscard]] RightOperand right_of(const MatmulStep& m, const GemmKernel& g);

// Sets the offset of panels, which another step makes, for so many batches.
Expr take_panels(GemmKernel& g, const RightOperand& right, sym::Context& context);

// Of panels of what the product reads, or the step before it writes.
[[nodiscard]] Param panel_param(abi::DType dtype, ParamRole role);
// The step that packs `product`'s panels of what `from` is; adds their buffer, the next one, which
// is the product's second.
[[nodiscard]] Step pack_step(const RightOperand& right, const Param& from, Expr batches,
                             const KernelStep& product, loop::Program& program,
                             const abi::Target& device);

}  // namespace inkle::schedule
