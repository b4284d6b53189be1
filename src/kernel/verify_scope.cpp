#include "kernel/verify_scope.h"

#include <utility>

#include "sym/symbols.h"

namespace inkle::kernel {

void SymbolScope::declare_size(Expr size) {
  d_.require(!size.is_null() && size.kind() == sym::Kind::symbol, "a size is no symbol");
  if (of(size).is_size) d_.fail(fmt::format("size {} is declared twice", size.name()));
  *symbols_.add(size).first = {.is_in_scope = true, .is_size = true};
}

SymbolScope::Symbol SymbolScope::of(Expr symbol) const {
  const Symbol* known = symbols_.find(symbol);
  return known == nullptr ? Symbol() : *known;
}

void SymbolScope::contains_all(Expr e) const {
  d_.require(!e.is_null(), "a missing expression");
  (void)sym::all_symbols(e, [&](Expr s) {
    if (!of(s).is_in_scope) d_.fail(fmt::format("symbol {} is not in scope", s.name()));
    return true;
  });
}

void SymbolScope::sizes_alone(Expr e, std::string_view what) const {
  (void)sym::all_symbols(e, [&](Expr s) {
    if (!of(s).is_size) {
      d_.fail(fmt::format("{} depends on {}, which is no size", what, s.name()));
    }
    return true;
  });
}

void SymbolScope::declare(Expr symbol, Expr low, Expr high, bool reaches_all) {
  d_.require(!symbol.is_null() && symbol.kind() == sym::Kind::symbol, "a missing symbol");
  Symbol& declared = *symbols_.add(symbol).first;
  if (declared.is_in_scope) d_.fail(fmt::format("symbol {} is declared twice", symbol.name()));
  declared.is_in_scope = true;
  order_.push_back(symbol);
  if (!reaches_all) return;
  const sym::Range known = sym::bounds(symbol);
  if (known.low > sym::bounds(low).low || known.high < sym::bounds(high).high) is_known_ = false;
  reached_.push_back({symbol, low, high});
}

void SymbolScope::forget(std::size_t symbols) {
  for (; order_.size() > symbols; order_.pop_back()) {
    const Expr symbol = order_.back();
    *symbols_.add(symbol).first = {};
    // Symbols are declared and forgotten as a stack is.
    if (!reached_.empty() && reached_.back().symbol == symbol) reached_.pop_back();
  }
}

// Registers have no address.
void SymbolScope::unrolled_alone(Expr e, std::string_view memory) const {
  (void)sym::all_symbols(e, [&](Expr s) {
    if (!of(s).is_unrolled) {
      d_.fail(fmt::format("registers {} at an index that depends on {}", memory, s.name()));
    }
    return true;
  });
}

Expr SymbolScope::with(Expr e, Expr Reached::*value) const {
  std::vector<std::pair<Expr, Expr>> values;
  for (const Reached& r : reached_) values.emplace_back(r.symbol, r.*value);
  return sym::substitute(e, values);
}
Expr SymbolScope::at_first(Expr e) const { return with(e, &Reached::low); }
Expr SymbolScope::at_last(Expr e) const { return with(e, &Reached::high); }

}  // namespace inkle::kernel
