// Pieces of CUDA C++ text: lines with indentation, types, literals, index expressions.
#pragma once

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "abi/dtype.h"
#include "base/concat.h"
#include "base/function_ref.h"
#include "sym/expr.h"

namespace inkle::codegen::cuda {

using abi::DType;

// Text that grows at its end.
class Writer {
 public:
  explicit Writer(std::size_t expected = 0) {
    text_.reserve(expected);
    end_ = limit_ = text_.data();
  }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  // A line of parts, which are texts.
  template <class... Parts>
  void put(const Parts&... parts) {
    begin(parts...);
    end();
  }
  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    put(fmt::format(format, std::forward<Args>(args)...));
  }
  // A line in pieces.
  template <class... Parts>
  void begin(const Parts&... parts) {
    std::memset(room(indent_), ' ', indent_);
    end_ += indent_;
    add(parts...);
  }
  // The text of a kernel is some ten thousand parts. Those of a known size are copied without a
  // call.
  template <class... Parts>
  void add(const Parts&... parts) {
    char* at = room((room_of(parts) + ... + 0));
    ((at = copy(at, parts)), ...);
    end_ = at;
  }
  template <class... Parts>
  void end(const Parts&... parts) {
    add(parts..., "\n");
  }
  // Ends a line that opens a block.
  template <class... Parts>
  void end_open(const Parts&... parts) {
    end(parts...);
    indent_ += 2;
  }
  // "parts {" ... "}"
  template <class... Parts>
  void open(const Parts&... parts) {
    begin(parts...);
    end_open(sizeof...(parts) == 0 ? "{" : " {");
  }
  template <class... Parts>
  void close(const Parts&... parts) {
    indent_ -= 2;
    put("}", parts...);
  }

  [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(end_ - text_.data()); }
  [[nodiscard]] std::string_view since(std::size_t at) const { return {text_.data() + at, end_}; }
  // What has been written since then becomes this.
  void replace(std::size_t at, std::string_view by) {
    end_ = text_.data() + at;
    add(by);
  }
  [[nodiscard]] std::string take();

 private:
  // The end, behind which there is room for so much.
  char* room(std::size_t bytes) {
    if (bytes > static_cast<std::size_t>(limit_ - end_)) [[unlikely]]
      grow(bytes);
    return end_;
  }
  void grow(std::size_t bytes);

  template <std::size_t n>
  static std::size_t room_of(const char (&)[n]) {
    return n;
  }
  static std::size_t room_of(const ShortText&) { return sizeof(ShortText); }
  static std::size_t room_of(std::string_view part) { return part.size(); }
  template <std::size_t n>
  static char* copy(char* to, const char (&part)[n]) {
    std::memcpy(to, part, n);
    return to + n - 1;
  }
  static char* copy(char* to, const ShortText& part) { return part.copy_to(to); }
  static char* copy(char* to, std::string_view part) {
    std::memcpy(to, part.data(), part.size());
    return to + part.size();
  }

  std::string text_;  // and behind its end room for more
  char* end_ = nullptr;
  char* limit_ = nullptr;
  std::size_t indent_ = 0;
};

// The type of a value, in registers and in memory alike. Throws Unsupported for dtypes that are not
// computable.
[[nodiscard]] std::string_view type_of(DType dtype);
// `real` for floats, else `integer`.
[[nodiscard]] ShortText literal(DType dtype, double real, std::int64_t integer);

// A cache of facts about recent expressions.
template <class Value>
class RecentExpressions {
 public:
  // `find_out` is called where the value is not known.
  template <class F>
  [[nodiscard]] Value of(sym::Expr e, const F& find_out) {
    Entry& entry = entries_[e.id() % entries_.size()];
    if (entry.expression == e) return entry.value;
    const Value value = find_out(e);
    entry = {e, value};
    return value;
  }

 private:
  struct Entry {
    sym::Expr expression;
    Value value{};
  };
  std::array<Entry, 64> entries_;
};

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
  [[nodiscard]] Width of(sym::Expr e);
  [[nodiscard]] Width find_out(sym::Expr e);
  [[nodiscard]] double reach(sym::Expr e);
  RecentExpressions<bool> fits_;
  RecentExpressions<Width> known_;
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
