// Accumulators of reductions: their identity, their step over an element and how two are merged.
// loop::ReduceOp defines each reduction.
#pragma once

#include "loop/program.h"
#include "schedule/expand_values.h"

namespace inkle::schedule::expansion {

class Reducer {
 public:
  // `position`: the type of positions of searches, i32 or i64.
  Reducer(kernel::Builder& b, loop::ReduceOp op, DType accumulator, DType position);

  [[nodiscard]] bool has_position() const;
  // Long sums and products of floats are accumulated in chunks, which are merged in f64.
  [[nodiscard]] bool wants_chunks() const;
  [[nodiscard]] std::size_t registers() const { return has_position() ? 2 : 1; }
  Values identity();
  Values step(const Values& before, ValueId x, ValueId position);
  Values merge(const Values& a, const Values& b);

 private:
  ValueId is_better(ValueId a, ValueId b);
  ValueId combine(ValueId a, ValueId b);

  kernel::Builder& b_;
  loop::ReduceOp op_;
  DType dtype_;
  DType position_;
};

}  // namespace inkle::schedule::expansion
