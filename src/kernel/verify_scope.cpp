#include "kernel/verify_scope.h"

#include "sym/symbols.h"

namespace inkle::kernel {

void SymbolScope::declare_size(Expr size) {
  d_.require(!size.is_null() && size.kind() == sym::Kind::symbol, "a size is no symbol");
  d_.require(sizes_.insert(size.node()).second, "size {} is declared twice", size.name());
  scope_.insert(size.node());
}

void SymbolScope::contains_all(Expr e) const {
  d_.require(!e.is_null(), "a missing expression");
  (void)sym::all_symbols(e, [&](Expr s) {
    if (!scope_.contains(s.node())) d_.fail(fmt::format("symbol {} is not in scope", s.name()));
    return true;
  });
}

void SymbolScope::sizes_alone(Expr e, std::string_view what) const {
  (void)sym::all_symbols(e, [&](Expr s) {
    if (!sizes_.contains(s.node())) {
      d_.fail(fmt::format("{} depends on {}, which is no size", what, s.name()));
    }
    return true;
  });
}

void SymbolScope::declare(Expr symbol, Expr low, Expr high, bool reaches_all) {
  d_.require(!symbol.is_null() && symbol.kind() == sym::Kind::symbol, "a missing symbol");
  d_.require(scope_.insert(symbol.node()).second, "symbol {} is declared twice", symbol.name());
  order_.push_back(symbol);
  if (!reaches_all) return;
  lows_.emplace_back(symbol, low);
  highs_.emplace_back(symbol, high);
}

void SymbolScope::forget(std::size_t symbols) {
  for (; order_.size() > symbols; order_.pop_back()) {
    const Expr symbol = order_.back();
    scope_.erase(symbol.node());
    unrolled_.erase(symbol.node());
    // Symbols are declared and forgotten as a stack is.
    if (lows_.empty() || lows_.back().first != symbol) continue;
    lows_.pop_back();
    highs_.pop_back();
  }
}

// Registers have no address.
void SymbolScope::unrolled_alone(Expr e, std::string_view memory) const {
  (void)sym::all_symbols(e, [&](Expr s) {
    if (!unrolled_.contains(s.node())) {
      d_.fail(fmt::format("registers {} at an index that depends on {}", memory, s.name()));
    }
    return true;
  });
}

Expr SymbolScope::at_first(Expr e) const { return sym::substitute(e, lows_); }
Expr SymbolScope::at_last(Expr e) const { return sym::substitute(e, highs_); }

}  // namespace inkle::kernel
