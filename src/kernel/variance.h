// Where values may differ: from which threads on a value is one and the same. Collectives and
// barriers stand only where control does not vary within their scope, and printers keep what is
// uniform in one register.
#pragma once

#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "kernel/kernel.h"
#include "loop/scope.h"

namespace inkle::kernel {

// Sound, not exact: a value may vary less than is said. Weak loads are taken to be free of races.
class VarianceAnalysis {
 public:
  // The kernel must be well formed (verify.h) and outlive the analysis.
  explicit VarianceAnalysis(const Kernel& kernel);

  [[nodiscard]] Variance of(ValueId value) const { return values_[value]; }
  [[nodiscard]] Variance of(Expr expression);  // a symbol that is not in scope varies by lane
  [[nodiscard]] const std::vector<Variance>& values() const { return values_; }
  // Whether some operation of the kernel may write the memory.
  [[nodiscard]] bool is_written(MemoryId memory) const { return written_[memory]; }
  // Of what a loop's number of iterations depends on.
  [[nodiscard]] Variance trip(const Loop& loop);

 private:
  void collect_writes(RegionId region);
  void spread_writes();
  void declare_axes();
  Expr thread_axis(const Axis& axis, std::int64_t inner);
  void declare(Expr symbol, sym::SymbolInfo facts, Variance variance);
  void map(Expr symbol, Expr to);
  Expr fresh(sym::SymbolInfo facts, Variance variance);
  Expr local(Expr e);
  void raise(ValueId value, Variance variance);
  void raise_symbol(Expr symbol, Variance variance);
  Variance most(const std::vector<ValueId>& values) const;
  const std::vector<const Variance*>& parts(Expr e);
  Variance access(const Access& access, const std::vector<ValueId>& operands);
  Variance loaded(const Access& access, const std::vector<ValueId>& operands);
  Variance collected(const Operation& o) const;
  void region(RegionId id);
  void operation(const Operation& o);
  void looped(const Operation& o, Variance trip);
  void fold(const Operation& o);
  void yielded(const Operation& o);
  void symbolic(const Operation& o, Variance value);
  Variance shuffled(const Operation& o) const;
  void mapped(const Operation& o);
  void loop_variable(const Loop& loop);

  const Kernel& k_;
  sym::Context scratch_;
  loop::Translation local_;
  std::map<std::uint32_t, Expr> mapped_;       // by id of the kernel's symbol
  std::map<std::uint32_t, Variance> symbols_;  // by id of the symbol in scratch_
  // By id of an expression: of the symbols that it is made of.
  std::unordered_map<std::uint32_t, std::vector<const Variance*>> parts_;
  std::vector<Variance> values_;
  std::vector<bool> written_;
  bool changed_ = false;
};

[[nodiscard]] std::vector<Variance> variances(const Kernel& kernel);

}  // namespace inkle::kernel
