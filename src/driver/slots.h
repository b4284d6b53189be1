// Symbolic expressions -> slots of a plan and the size program that fills them.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "abi/plan.h"
#include "loop/program.h"
#include "sym/expr.h"

namespace inkle::driver {

class SlotTable {
 public:
  // Symbols are read from integer arguments, else from a size of a tensor argument.
  SlotTable(abi::Plan& plan, const loop::Program& program);

  // The slot that holds `e`; equal expressions share one. Unsupported if a symbol of it has no
  // argument to come from.
  abi::Slot slot(sym::Expr e);
  abi::Slot constant(std::int64_t value);
  std::vector<abi::Slot> slots(const std::vector<sym::Expr>& list);

 private:
  abi::Slot emit(abi::SizeInstruction instruction);
  abi::Slot combine(abi::SizeInstruction::Op op, abi::Slot a, abi::Slot b);
  abi::Slot leaf(sym::Expr symbol);
  abi::Slot compute(sym::Expr e);

  abi::Plan& plan_;
  const loop::Program& program_;
  std::unordered_map<sym::Expr, abi::Slot> known_;
};

}  // namespace inkle::driver
