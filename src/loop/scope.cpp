#include "loop/scope.h"

#include "base/error.h"

namespace inkle::loop {

using sym::Expr;

Expr Translation::operator()(Expr e) const {
  const auto fold = [&](Expr (*join)(Expr, Expr)) {
    Expr result;
    for (const Expr operand : e.operands()) {
      const Expr part = (*this)(operand);
      result = result.is_null() ? part : join(result, part);
    }
    return result;
  };
  switch (e.kind()) {
    case sym::Kind::constant:
      return to_.constant(*e.constant());
    case sym::Kind::symbol: {
      const auto it = map_.find(e);
      INKLE_CHECK(it != map_.end(), "symbol {} is not in scope", e.name());
      return it->second;
    }
    case sym::Kind::add:
      return fold([](Expr a, Expr b) { return a + b; });
    case sym::Kind::mul:
      return fold([](Expr a, Expr b) { return a * b; });
    case sym::Kind::floordiv:
      return fold([](Expr a, Expr b) { return sym::floordiv(a, b); });
    case sym::Kind::mod:
      return fold([](Expr a, Expr b) { return sym::mod(a, b); });
    case sym::Kind::min:
      return fold([](Expr a, Expr b) { return sym::min(a, b); });
    case sym::Kind::max:
      return fold([](Expr a, Expr b) { return sym::max(a, b); });
  }
  return e;
}

Expr named_index(sym::Context& context, std::string name, Expr extent) {
  while (context.find_symbol(name)) name += '_';
  return context.symbol(name, {.range = {.low = 0}, .extent = extent});
}

Expr copy_symbol(sym::Context& context, Expr symbol) {
  sym::SymbolInfo info = symbol.context().info(symbol);
  info.extent = Expr();
  return context.symbol(symbol.name(), info);
}

}  // namespace inkle::loop
