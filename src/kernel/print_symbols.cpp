#include "kernel/print_symbols.h"

#include <fmt/format.h>

#include <utility>

namespace inkle::kernel {

void SymbolPrinter::declare(Expr symbol, char prefix, sym::SymbolInfo facts) {
  if (symbol.is_null()) return;
  std::string name = fmt::format("{}{}", prefix, counters_[prefix]++);
  while (scratch_.find_symbol(name)) name += '_';
  local_.map(symbol, scratch_.symbol(name, std::move(facts)));
  declared_[symbol.id()] = true;
}

void SymbolPrinter::declare_index(Expr symbol, char prefix, std::int64_t extent) {
  declare(symbol, prefix, {.range = {.low = 0}, .extent = scratch_.constant(extent)});
}

void SymbolPrinter::declare_size(Expr symbol) {
  if (declared_.contains(symbol.id())) return;
  local_.map(symbol, loop::copy_symbol(scratch_, symbol));
  declared_[symbol.id()] = true;
}

Expr SymbolPrinter::local(Expr e) {
  if (e.is_null()) return e;
  for (const Expr symbol : sym::symbols(e)) {
    if (declared_.contains(symbol.id())) continue;
    // Not in scope: a wrong kernel, printed for a message.
    std::string name = "?" + symbol.name();
    while (scratch_.find_symbol(name)) name += '_';
    local_.map(symbol, scratch_.symbol(name, {}));
    declared_[symbol.id()] = true;
  }
  return local_(e);
}

std::string SymbolPrinter::text(Expr e) { return sym::to_string(local(e)); }

std::string SymbolPrinter::texts(const std::vector<Expr>& list) {
  std::string out;
  for (std::size_t i = 0; i < list.size(); ++i) out += (i == 0 ? "" : ",") + text(list[i]);
  return out;
}

std::string range_text(const sym::SymbolInfo& info) {
  std::string out;
  if (info.range.low != sym::Range::kMin) out += fmt::format("{}", info.range.low);
  out += "..";
  if (info.range.high != sym::Range::kMax) out += fmt::format("{}", info.range.high);
  if (info.divisor != 1) out += fmt::format(" divisor {}", info.divisor);
  if (info.hint) out += fmt::format(" hint {}", *info.hint);
  return out;
}

}  // namespace inkle::kernel
