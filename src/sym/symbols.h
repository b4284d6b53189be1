// Symbols that are made and looked at often: for passes over kernels.
#pragma once

#include "sym/expr.h"

namespace inkle::sym {

// A new symbol as Context::index makes it, with these facts. Cheaper than set_info() behind it,
// which forgets what is known of all expressions.
Expr fresh(Context& context, const SymbolInfo& info);

// Whether the predicate holds for all symbols of e; it may see one more than once.
template <class Predicate>
[[nodiscard]] bool all_symbols(Expr e, const Predicate& holds) {
  if (e.kind() == Kind::symbol) return holds(e);
  for (const Expr operand : e.operands()) {
    if (!all_symbols(operand, holds)) return false;
  }
  return true;
}

}  // namespace inkle::sym
