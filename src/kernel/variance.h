// Where values may differ: from which threads on a value is one and the same. Collectives and
// barriers stand only where control does not vary within their scope, and printers keep what is
// uniform in one register.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "kernel/kernel.h"

namespace inkle::kernel {

// Sound, not exact: a value may vary less than is said. Weak loads are taken to be free of races.
class VarianceAnalysis {
 public:
  // The kernel must be well formed (verify.h) and outlive the analysis.
  explicit VarianceAnalysis(const Kernel& kernel);
  ~VarianceAnalysis();
  VarianceAnalysis(const VarianceAnalysis&) = delete;
  VarianceAnalysis& operator=(const VarianceAnalysis&) = delete;

  [[nodiscard]] Variance of(ValueId value) const { return values_[value]; }
  [[nodiscard]] Variance of(Expr expression);  // a symbol that is not in scope varies by lane
  [[nodiscard]] const std::vector<Variance>& values() const { return values_; }
  // Whether some operation of the kernel may write the memory.
  [[nodiscard]] bool is_written(MemoryId memory) const { return written_[memory]; }
  // Of what a loop's number of iterations depends on.
  [[nodiscard]] Variance trip(const Loop& loop);

 private:
  // A symbol of the kernel, with what an expression that is simplified anew may use of it.
  struct Symbol {
    Variance variance = Variance::kernel;
    sym::SymbolInfo
        info;          // in terms of the kernel; of a loop's variable, `extent` is the loop's end
    Expr begin, step;  // of a loop
    std::int64_t parts = 0;   // a thread axis of so many parts of warps ...
    std::int64_t within = 1;  // ... of so many positions each; 0: an axis of one position
    Expr local;               // its expression in the scratch context; null: not needed so far
  };
  struct Scratch;
  // The variances of an expression's symbols: a part of pool_.
  struct Parts {
    std::uint32_t begin = 0, end = 0;
  };

  void collect_writes(RegionId region);
  void spread_writes();
  void declare_axes();
  void declare_thread_axis(const Axis& axis, std::int64_t inner);
  void declare(Expr symbol, const Symbol& made);
  Symbol& symbol(Expr e);
  Scratch& scratch();
  Expr fresh(const sym::SymbolInfo& facts, const Variance* variance);
  Expr local_symbol(Expr e);
  Expr local(Expr e);
  void raise(ValueId value, Variance variance);
  Variance most(const std::vector<ValueId>& values) const;
  Parts parts(Expr e);
  Variance access(const Access& access, const std::vector<ValueId>& operands);
  Variance loaded(const Access& access, const std::vector<ValueId>& operands);
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
  std::unordered_map<const sym::Node*, Symbol> symbols_;
  std::unordered_map<const sym::Node*, Parts> parts_;  // of expressions
  std::vector<const Variance*> pool_;
  std::unique_ptr<Scratch> scratch_;  // made when an expression needs it
  std::vector<Variance> values_;
  std::vector<bool> written_;
};

[[nodiscard]] std::vector<Variance> variances(const Kernel& kernel);

}  // namespace inkle::kernel
