// Pieces of CUDA C++ text: lines with indentation, types, literals, index expressions.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <iterator>
#include <string>
#include <string_view>
#include <unordered_map>

#include "abi/dtype.h"
#include "base/concat.h"
#include "sym/expr.h"

namespace inkle::codegen::cuda {

using abi::DType;

class Writer {
 public:
  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    text_.append(indent_, ' ');
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
    text_ += '\n';
  }
  // A line of parts: text of a kernel is a few thousand of these.
  void put(TextParts parts) {
    text_.append(indent_, ' ');
    append(text_, parts);
    text_ += '\n';
  }
  void raw(std::string_view text) { put({text}); }
  // "text {" ... "}"
  void open(std::string_view text) {
    if (text.empty())
      raw("{");
    else
      put({text, " {"});
    indent_ += 2;
  }
  void close(std::string_view end = "") {
    indent_ -= 2;
    put({"}", end});
  }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::string text_;
  std::size_t indent_ = 0;
};

// The type of a value, in registers and in memory alike. Throws Unsupported for dtypes that are not
// computable.
[[nodiscard]] std::string_view type_of(DType dtype);
// `real` for floats, else `integer`.
[[nodiscard]] std::string literal(DType dtype, double real, std::int64_t integer);

// What stands for a symbol of index expressions.
struct SymbolText {
  std::string text;
  bool wide = false;  // i64, else int
};
using SymbolTexts = std::function<SymbolText(sym::Expr)>;

// Whether expressions are within 32 bits, with all their parts. Facts about symbols must not
// change.
class Widths {
 public:
  [[nodiscard]] bool fits32(sym::Expr e) { return of(e).fits; }

 private:
  struct Width {
    bool fits = false;
    double most = 0;  // no value is farther from 0
  };
  Width of(sym::Expr e);
  std::unordered_map<const sym::Node*, Width> known_;
};

// The value of an index expression: an int if it fits 32 bits and is not `wide`, else i64.
[[nodiscard]] std::string index_text(sym::Expr e, const SymbolTexts& symbols, bool wide);

}  // namespace inkle::codegen::cuda
