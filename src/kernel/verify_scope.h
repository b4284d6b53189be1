// The symbols that an expression may use where the verifier's walk is. For verify*.cpp only.
#pragma once

#include <span>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "kernel/verify_diagnostics.h"

namespace inkle::kernel {

class SymbolScope {
 public:
  explicit SymbolScope(const Diagnostics& diagnostics) : d_(diagnostics) {}

  void declare_size(Expr size);
  // `reaches_all`: it takes all of its values, of which these are the first and the last.
  void declare(Expr symbol, Expr low, Expr high, bool reaches_all);
  void mark_unrolled(Expr symbol) { unrolled_.insert(symbol.node()); }
  [[nodiscard]] std::size_t size() const { return order_.size(); }
  void forget(std::size_t symbols);  // all but so many, which were declared first

  // What an expression must consist of.
  void contains_all(Expr e) const;
  void sizes_alone(Expr e, std::string_view what) const;
  void unrolled_alone(Expr e, std::string_view memory) const;
  // The expression with the first or last values of those symbols that reach them.
  [[nodiscard]] Expr at_first(Expr e) const;
  [[nodiscard]] Expr at_last(Expr e) const;

 private:
  const Diagnostics& d_;
  std::unordered_set<const sym::Node*> scope_;
  std::vector<Expr> order_;
  std::unordered_set<const sym::Node*> sizes_;
  std::unordered_set<const sym::Node*> unrolled_;  // constants once loops are unrolled
  std::vector<std::pair<Expr, Expr>> lows_, highs_;
};

}  // namespace inkle::kernel
