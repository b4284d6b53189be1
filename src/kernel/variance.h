// Where values may differ: from which threads on a value is one and the same. Collectives and
// barriers stand only where control does not vary within their scope, and printers keep what is
// uniform in one register.
#pragma once

#include <vector>

#include "kernel/kernel.h"
#include "kernel/variance_symbols.h"

namespace inkle::kernel {

// Sound, not exact: a value may vary less than is said. Weak loads are taken to be free of races.
class VarianceAnalysis {
 public:
  // The kernel must be well formed (verify.h) and outlive the analysis.
  explicit VarianceAnalysis(const Kernel& kernel);

  [[nodiscard]] Variance of(ValueId value) const { return values_[value]; }
  // A symbol that is not in scope varies by lane.
  [[nodiscard]] Variance of(Expr expression) { return symbols_.of(expression); }
  [[nodiscard]] const std::vector<Variance>& values() const { return values_; }
  // Whether some operation of the kernel may write the memory.
  [[nodiscard]] bool is_written(MemoryId memory) const { return written_[memory]; }
  // Of what a loop's number of iterations depends on.
  [[nodiscard]] Variance trip(const Loop& loop);

 private:
  void collect_writes(RegionId region);
  void spread_writes();
  void raise(ValueId value, Variance variance);
  Variance most(const Values& values) const;
  Variance access(const Access& access, const Values& operands);
  Variance loaded(const Access& access, const Values& operands);
  Variance collected(const Operation& o) const;
  void region(RegionId id);
  void operation(const Operation& o);
  template <class Trip>
  void looped(const Operation& o, const Trip& trip);
  void fold(const Operation& o);
  void yielded(const Operation& o);
  void symbolic(const Operation& o, Variance value);
  Variance shuffled(const Operation& o) const;
  void mapped(const Operation& o);
  void loop_variable(const Loop& loop);

  const Kernel& k_;
  SymbolVariance symbols_;
  std::vector<Variance> values_;
  std::vector<bool> written_;
};

[[nodiscard]] std::vector<Variance> variances(const Kernel& kernel);

}  // namespace inkle::kernel
