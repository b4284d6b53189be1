// Where index expressions may differ: what each symbol of a kernel varies by. For variance*.cpp and
// variance.h only.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "kernel/expr_map.h"
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
  using Number = std::uint32_t;  // a position in symbols_
  // The symbols of an expression: a part of pool_, or those of the terms of a sum.
  struct Parts {
    std::uint32_t begin = 0, end = 0;
    friend bool operator==(Parts, Parts) = default;
  };
  static constexpr Parts kByTerms{kNone, kNone};

  void declare_axes(const Launch& launch);
  void declare_thread_axis(const Axis& axis, std::int64_t inner);
  Number number_of(Expr symbol);
  Scratch& scratch();
  Expr fresh(const sym::SymbolInfo& facts, Number number);
  Expr local_symbol(Expr e);
  Expr local(Expr e);
  Parts parts(Expr e);

  std::deque<Symbol> symbols_;
  ExprMap<Number> numbers_;
  ExprMap<Parts> parts_;  // of expressions
  std::vector<Number> pool_;
  std::unique_ptr<Scratch> scratch_;  // made when an expression needs it
};

}  // namespace inkle::kernel
