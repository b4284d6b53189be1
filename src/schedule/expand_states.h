// Partial results of reductions on a GPU: the identity, the step over an element and the merge of
// two threads' states. loop::ReduceOp defines each reduction.
#pragma once

#include "loop/program.h"
#include "schedule/expand_values.h"

namespace inkle::schedule::expansion {

class GpuReducer {
 public:
  // `position`: the type of positions of searches, i32 or i64.
  GpuReducer(kernel::Builder& b, loop::ReduceOp op, DType accumulator, DType position);

  // welford: count, mean, sum of squared deviations. argmin, argmax: value, position.
  // online_softmax: maximum, sum of exponentials. Others: one value.
  [[nodiscard]] std::size_t states() const;
  [[nodiscard]] bool has_position() const;
  [[nodiscard]] DType position() const { return position_; }
  // The type that an element is cast to.
  [[nodiscard]] DType element() const { return dtype_; }

  Values identity();
  // The position is that of the element, after those that came before.
  Values step(const Values& before, ValueId x, ValueId position);
  Values merge(const Values& a, const Values& b);
  // The final row values: loop::result_count of them.
  Values results(const Values& states);

  // --- For reductions that take several elements at a time
  // Whether x comes before `best`: a NaN before all else.
  ValueId beats(ValueId x, ValueId best);
  // exp(from - to), of minus infinity 0, of equals 1.
  ValueId scale(ValueId from, ValueId to);

 private:
  ValueId number(double value);
  ValueId combine(ValueId a, ValueId b);
  Values better(const Values& a, const Values& b);
  Values add_moment(const Values& before, ValueId x);
  Values merge_moments(const Values& a, const Values& b);
  Values merge_exponentials(const Values& a, const Values& b);

  kernel::Builder& b_;
  loop::ReduceOp op_;
  DType dtype_;
  DType position_;
};

}  // namespace inkle::schedule::expansion
