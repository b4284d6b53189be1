#include "kernel/parse_symbols.h"

#include <fmt/format.h>

#include <optional>

#include "sym/symbols.h"

namespace inkle::kernel {

Expr SymbolParser::expression() { return global_(local_expression()); }

Expr SymbolParser::local_expression() { return sym::parse(s_, names_); }

std::vector<Expr> SymbolParser::expressions(std::string_view end) {
  std::vector<Expr> list;
  while (!s_.accept(end)) {
    if (!list.empty()) s_.expect(",");
    list.push_back(expression());
  }
  return list;
}

Expr SymbolParser::declare(const std::string& name, const sym::SymbolInfo& facts) {
  if (names_.find_symbol(name)) s_.fail(fmt::format("'{}' is declared twice", name));
  sym::SymbolInfo own = facts;
  if (!facts.extent.is_null()) own.extent = global_(facts.extent);
  const Expr symbol = sym::fresh(context_, own);
  global_.map(names_.symbol(name, facts), symbol);
  return symbol;
}

Expr SymbolParser::declare_index(const std::string& name, Expr extent) {
  return declare(name, {.range = {.low = 0}, .extent = extent});
}

sym::SymbolInfo SymbolParser::range() {
  sym::SymbolInfo info;
  if (s_.next_is_number()) info.range.low = s_.integer();
  s_.expect("..");
  if (s_.next_is_number()) info.range.high = s_.integer();
  if (info.range.high < info.range.low) s_.fail("an empty range");
  if (s_.accept("divisor")) info.divisor = s_.integer();
  if (info.divisor < 1) s_.fail("a divisor below 1");
  return info;
}

Expr SymbolParser::declare_size(const std::string& name) {
  if (names_.find_symbol(name)) s_.fail(fmt::format("'{}' is declared twice", name));
  s_.expect("in");
  sym::SymbolInfo info = range();
  if (s_.accept("hint")) info.hint = s_.integer();
  const std::optional<Expr> known = context_.find_symbol(name);
  const Expr symbol = known ? *known : context_.symbol(name, info);
  global_.map(names_.symbol(name, info), symbol);
  return symbol;
}

}  // namespace inkle::kernel
