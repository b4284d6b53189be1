// The symbols that an expression may use where the verifier's walk is. For verify*.cpp only.
#pragma once

#include <string_view>
#include <vector>

#include "kernel/expr_map.h"
#include "kernel/verify_diagnostics.h"

namespace inkle::kernel {

class SymbolScope {
 public:
  explicit SymbolScope(const Diagnostics& diagnostics) : d_(diagnostics) {}

  void declare_size(Expr size);
  // `reaches_all`: it takes all of its values, of which these are the first and the last.
  void declare(Expr symbol, Expr low, Expr high, bool reaches_all);
  void mark_unrolled(Expr symbol) { symbols_.add(symbol).first->is_unrolled = true; }
  [[nodiscard]] std::size_t size() const { return order_.size(); }
  void forget(std::size_t symbols);  // all but so many, which were declared first

  // What an expression must consist of.
  void contains_all(Expr e) const;
  void sizes_alone(Expr e, std::string_view what) const;
  void unrolled_alone(Expr e, std::string_view memory) const;
  // Whether what is known of symbols in general holds of all values that they take here.
  [[nodiscard]] bool is_known() const { return is_known_; }
  // The expression with the first or last values of those symbols that reach them.
  [[nodiscard]] Expr at_first(Expr e) const;
  [[nodiscard]] Expr at_last(Expr e) const;

 private:
  struct Symbol {
    bool is_in_scope = false;
    bool is_size = false;
    bool is_unrolled = false;  // a constant once loops are unrolled
  };
  struct Reached {
    Expr symbol, low, high;
  };
  [[nodiscard]] Symbol of(Expr symbol) const;
  [[nodiscard]] Expr with(Expr e, Expr Reached::*value) const;

  const Diagnostics& d_;
  ExprMap<Symbol> symbols_;
  std::vector<Expr> order_;
  std::vector<Reached> reached_;
  bool is_known_ = true;
};

}  // namespace inkle::kernel
