// On which thread axes control may depend: finer than variance within a warp, where teams go
// different ways.
#pragma once

#include <cstdint>
#include <vector>

#include "kernel/expr_map.h"
#include "kernel/variance.h"

namespace inkle::kernel {

// A bit for each axis of the launch; the last one stands for all that are too many.
using AxisSet = std::uint32_t;
[[nodiscard]] AxisSet bit_of_axis(AxisId axis);

class ThreadDependence {
 public:
  // Both must outlive this. The kernel must be well formed.
  ThreadDependence(const Kernel& kernel, VarianceAnalysis& variance);

  // The caller visits the kernel in order and declares the symbols that it comes to: of a loop, and
  // of `indirect` or `bind`; or all that a region has.
  void declare(const Loop& loop);
  void declare(const Operation& symbolic);
  void declare_all(RegionId region);

  // What is one for all threads of a warp depends on no axis here.
  [[nodiscard]] AxisSet of(Expr expression);
  [[nodiscard]] AxisSet of(ValueId value);
  [[nodiscard]] AxisSet trip(const Loop& loop);
  // Whether control that depends on these axes takes all of so many neighbouring lanes, a part of a
  // warp, the same way.
  [[nodiscard]] bool is_one_for(AxisSet control, std::int64_t lanes) const;

 private:
  AxisSet found(ValueId value);

  const Kernel& k_;
  VarianceAnalysis& variance_;
  bool has_threads_ = false;
  ExprMap<AxisSet> symbols_;
  std::vector<AxisSet> values_;  // with kKnown: those asked for
};

}  // namespace inkle::kernel
