// Pieces of CUDA C++ text: lines with indentation, types, literals, index expressions.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "abi/dtype.h"
#include "base/concat.h"
#include "base/function_ref.h"
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
    begin(parts);
    end();
  }
  // A line of which the middle is appended to what this returns.
  std::string& begin(TextParts parts) {
    text_.append(indent_, ' ');
    append(text_, parts);
    return text_;
  }
  void end(std::string_view last = "") {
    text_ += last;
    text_ += '\n';
  }
  void raw(std::string_view text) { put({text}); }
  // "parts {" ... "}"
  void open(TextParts parts) {
    begin(parts);
    end_open(parts.size() == 0 ? "{" : " {");
  }
  // Ends a line that opens a block.
  void end_open(std::string_view last) {
    end(last);
    indent_ += 2;
  }
  void close(std::string_view end = "") {
    indent_ -= 2;
    put({"}", end});
  }
  void reserve(std::size_t bytes) { text_.reserve(bytes); }
  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  std::string text_;
  std::size_t indent_ = 0;
};

// The type of a value, in registers and in memory alike. Throws Unsupported for dtypes that are not
// computable.
[[nodiscard]] std::string_view type_of(DType dtype);
// `real` for floats, else `integer`.
[[nodiscard]] ShortText literal(DType dtype, double real, std::int64_t integer);

// What stands for a symbol of index expressions.
struct SymbolText {
  ShortText text;
  bool wide = false;  // i64, else int
};
using SymbolTexts = function_ref<SymbolText(sym::Expr)>;

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

// Appends the value of an index expression: an int if it fits 32 bits and is not `wide`, else i64.
void print_index(std::string& to, sym::Expr e, SymbolTexts symbols, bool wide);

}  // namespace inkle::codegen::cuda

template <>
struct fmt::formatter<inkle::ShortText> : fmt::formatter<std::string_view> {
  template <class Context>
  auto format(const inkle::ShortText& text, Context& context) const {
    return fmt::formatter<std::string_view>::format(text, context);
  }
};
