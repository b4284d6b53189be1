// Symbols and expressions as text. For print*.cpp only.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "kernel/kernel.h"
#include "loop/scope.h"

namespace inkle::kernel {

class SymbolPrinter {
 public:
  SymbolPrinter() : local_(scratch_) {}
  // A name of its own, with facts in terms of the text's symbols.
  void declare(Expr symbol, char prefix, sym::SymbolInfo facts);
  void declare_index(Expr symbol, char prefix, std::int64_t extent);
  void declare_size(Expr symbol);
  Expr local(Expr e);  // the text's expression; symbols out of scope get a name with "?"
  std::string text(Expr e);
  std::string texts(const std::vector<Expr>& list);

 private:
  sym::Context scratch_;
  loop::Translation local_;
  std::map<std::uint32_t, bool> declared_;  // ids of symbols in local_
  std::map<char, std::size_t> counters_;    // of names, by prefix
};

[[nodiscard]] std::string range_text(const sym::SymbolInfo& info);

}  // namespace inkle::kernel
