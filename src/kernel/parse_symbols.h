// Symbols and expressions of a kernel's text: the names there, and the kernel's
// own symbols. For parse*.cpp only.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernel/kernel.h"
#include "kernel/parse_text.h"
#include "loop/scope.h"

namespace inkle::kernel {

class SymbolParser {
 public:
  SymbolParser(KernelText& text, sym::Context& context)
      : s_(text.scanner), context_(context), global_(context) {}

  Expr local_expression();  // in terms of names()
  Expr expression();        // of the kernel's symbols
  std::vector<Expr> expressions(std::string_view end);
  Expr translated(Expr local) { return global_(local); }
  [[nodiscard]] sym::Context& names() { return names_; }
  // A symbol called `name` in the text: the kernel's own for it. Facts in terms
  // of names().
  Expr declare(const std::string& name, const sym::SymbolInfo& facts);
  Expr declare_index(const std::string& name, Expr extent);
  Expr declare_size(const std::string& name);  // from "in" on
  sym::SymbolInfo range();

 private:
  Scanner& s_;
  sym::Context& context_;
  sym::Context names_;  // the symbols by their names in the text
  loop::Translation global_;
};

}  // namespace inkle::kernel
