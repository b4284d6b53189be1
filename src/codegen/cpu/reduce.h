// Accumulators of reductions: one or two registers for each copy of the lanes.
#pragma once

#include "codegen/cpu/ir.h"
#include "codegen/cpu/values.h"
#include "loop/program.h"

namespace inkle::codegen::cpu {

// Reductions whose partial results combine without a count: all but Welford's (and argmin and
// argmax, which also need positions, included). `position_bits`: width of positions.
class Reducer {
 public:
  Reducer(Ir& ir, loop::ReduceOp op, DType accumulator, int position_bits);

  [[nodiscard]] std::size_t registers() const { return has_position() ? 2 : 1; }
  [[nodiscard]] bool has_position() const;
  // Float sums and products lose digits when many terms meet one accumulator.
  [[nodiscard]] bool wants_chunks() const;
  // What holds before the first element.
  [[nodiscard]] Values identity(int lanes);
  // `mask`: active lanes, or null.
  [[nodiscard]] Values step(const Values& before, Value* x, Value* position, Value* mask);
  [[nodiscard]] Values merge(const Values& a, const Values& b);
  // All lanes into one.
  [[nodiscard]] Values across_lanes(Values v);

 private:
  // Lanes in which b replaces a.
  Value* is_better(Value* a, Value* b);
  Value* combine(Value* a, Value* b);

  Ir& ir_;
  loop::ReduceOp op_;
  DType dtype_;
  int position_bits_;
};

}  // namespace inkle::codegen::cpu
