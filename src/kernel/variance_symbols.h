// Where index expressions may differ: what each symbol of a kernel varies by. For variance*.cpp and
// variance.h only.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "kernel/kernel.h"

namespace inkle::kernel {

class SymbolVariance {
 public:
  // A symbol of the kernel, with what an expression that is simplified anew may use of it.
  struct Symbol {
    Variance variance = Variance::kernel;
    // In terms of the kernel; of a loop's variable, `extent` is the loop's end.
    sym::SymbolInfo info;
    Expr begin, step;         // of a loop
    std::int64_t parts = 0;   // a thread axis of so many parts of warps ...
    std::int64_t within = 1;  // ... of so many positions each; 0: an axis of one position
    Expr local;               // its expression in the scratch context; null: not needed so far
  };

  // With the sizes and axes of the kernel declared.
  explicit SymbolVariance(const Kernel& kernel);
  ~SymbolVariance();
  SymbolVariance(const SymbolVariance&) = delete;
  SymbolVariance& operator=(const SymbolVariance&) = delete;

  // One that is declared again varies by what both do.
  void declare(Expr symbol, const Symbol& made);
  [[nodiscard]] Variance of(Expr expression);  // a symbol that is not in scope varies by lane

 private:
  struct Scratch;
  // The variances of an expression's symbols: a part of pool_.
  struct Parts {
    std::uint32_t begin = 0, end = 0;
  };

  void declare_axes(const Launch& launch);
  void declare_thread_axis(const Axis& axis, std::int64_t inner);
  Symbol& symbol(Expr e);
  Scratch& scratch();
  Expr fresh(const sym::SymbolInfo& facts, const Variance* variance);
  Expr local_symbol(Expr e);
  Expr local(Expr e);
  Parts parts(Expr e);

  std::unordered_map<const sym::Node*, Symbol> symbols_;
  std::unordered_map<const sym::Node*, Parts> parts_;  // of expressions
  std::vector<const Variance*> pool_;
  std::unique_ptr<Scratch> scratch_;  // made when an expression needs it
};

}  // namespace inkle::kernel
