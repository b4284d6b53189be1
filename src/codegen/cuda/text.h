// Pieces of CUDA C++ text: lines with indentation, types, literals, index expressions.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <cstring>
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
  // A line of parts: text of a kernel is a few thousand of these.
  void put(TextParts parts) {
    begin(parts);
    end();
  }
  void raw(std::string_view text) { put({text}); }
  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    raw(fmt::format(format, std::forward<Args>(args)...));
  }
  // A line in pieces.
  void begin(TextParts parts) {
    std::memset(room(indent_), ' ', indent_);
    size_ += indent_;
    add(parts);
  }
  void add(TextParts parts) {
    std::size_t bytes = 0;
    for (const std::string_view part : parts) bytes += part.size();
    char* at = room(bytes);
    size_ += bytes;
    for (const std::string_view part : parts) {
      std::memcpy(at, part.data(), part.size());
      at += part.size();
    }
  }
  void end(std::string_view last = "") { add({last, "\n"}); }
  // Ends a line that opens a block.
  void end_open(std::string_view last) {
    end(last);
    indent_ += 2;
  }
  // "parts {" ... "}"
  void open(TextParts parts) {
    begin(parts);
    end_open(parts.size() == 0 ? "{" : " {");
  }
  void close(std::string_view end = "") {
    indent_ -= 2;
    put({"}", end});
  }

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::string_view since(std::size_t at) const {
    return std::string_view(text_).substr(at, size_ - at);
  }
  void replace(std::size_t at, std::size_t bytes, std::string_view by) {
    text_.replace(at, bytes, by);
    size_ += by.size() - bytes;
  }
  [[nodiscard]] std::string take() {
    text_.resize(std::exchange(size_, 0));
    return std::move(text_);
  }

 private:
  char* room(std::size_t bytes) {
    if (size_ + bytes > text_.size()) text_.resize(2 * (size_ + bytes));
    return text_.data() + size_;
  }

  std::string text_;  // and behind `size_` room for more
  std::size_t size_ = 0;
  std::size_t indent_ = 0;
};

// The type of a value, in registers and in memory alike. Throws Unsupported for dtypes that are not
// computable.
[[nodiscard]] std::string_view type_of(DType dtype);
// `real` for floats, else `integer`.
[[nodiscard]] ShortText literal(DType dtype, double real, std::int64_t integer);

// Whether expressions are within 32 bits, with all their parts. Facts about symbols must not
// change.
class Widths {
 public:
  [[nodiscard]] bool fits32(sym::Expr e);

 private:
  struct Width {
    bool fits = false;
    double most = 0;  // no value is farther from 0
  };
  Width of(sym::Expr e);
  [[nodiscard]] double reach(sym::Expr e);
  std::unordered_map<const sym::Node*, bool> fits_;
  std::unordered_map<const sym::Node*, Width> known_;
};

// Writes the value of an index expression: an int if it fits 32 bits and is not `wide`, else i64.
// `print_symbol` writes one of its symbols as that.
void print_index(Writer& to, sym::Expr e, function_ref<void(sym::Expr)> print_symbol, bool wide);

}  // namespace inkle::codegen::cuda

template <>
struct fmt::formatter<inkle::ShortText> : fmt::formatter<std::string_view> {
  template <class Context>
  auto format(const inkle::ShortText& text, Context& context) const {
    return fmt::formatter<std::string_view>::format(text, context);
  }
};
