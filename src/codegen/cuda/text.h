// Pieces of CUDA C++ text: lines with indentation, types, literals, index expressions.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <unordered_map>

#include "abi/dtype.h"
#include "sym/expr.h"

namespace inkle::codegen::cuda {

using abi::DType;

class Writer {
 public:
  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    raw(fmt::format(format, std::forward<Args>(args)...));
  }
  void raw(const std::string& text) { text_ += std::string(indent_, ' ') + text + "\n"; }
  // "text {" ... "}"
  void open(const std::string& text) {
    raw(text.empty() ? "{" : text + " {");
    indent_ += 2;
  }
  void close(const std::string& end = "") {
    indent_ -= 2;
    raw("}" + end);
  }
  // Text made elsewhere by a Writer, put at this indentation.
  void append(const std::string& lines);
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::string text_;
  std::size_t indent_ = 0;
};

// The type of a value, in registers and in memory alike. Throws Unsupported for dtypes that are not
// computable.
[[nodiscard]] std::string type_of(DType dtype);
// `real` for floats, else `integer`.
[[nodiscard]] std::string literal(DType dtype, double real, std::int64_t integer);

// What stands for a symbol of index expressions.
struct SymbolText {
  std::string text;
  bool wide = false;  // i64, else int
};
using Symbols = std::unordered_map<const sym::Node*, SymbolText>;

// Whether e and all its parts are within 32 bits.
[[nodiscard]] bool fits32(sym::Expr e);
// The value of an index expression: an int if fits32(e) and it is not `wide`, else i64.
[[nodiscard]] std::string index_text(sym::Expr e, const Symbols& symbols, bool wide);
[[nodiscard]] inline std::string index_text(sym::Expr e, const Symbols& symbols) {
  return index_text(e, symbols, !fits32(e));
}

}  // namespace inkle::codegen::cuda
