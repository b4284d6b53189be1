// Text put together of parts, where there is too much of it for formats.
#pragma once

#include <charconv>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <string>
#include <string_view>

#include "base/error.h"

namespace inkle {

using TextParts = std::initializer_list<std::string_view>;

// A text of a few characters, held by value: a name, a number, a literal. It never allocates.
class ShortText {
 public:
  ShortText() = default;
  ShortText(TextParts parts) {
    for (const std::string_view part : parts) add(part);
  }
  void add(std::string_view part) {
    INKLE_CHECK(part.size() <= sizeof text_ - size_, "a short text is longer than {}",
                sizeof text_);
    std::memcpy(text_ + size_, part.data(), part.size());
    size_ += static_cast<std::uint8_t>(part.size());
  }
  template <std::integral Number>
  void add(Number number) {
    const auto end = std::to_chars(text_ + size_, std::end(text_), number);
    INKLE_CHECK(end.ec == std::errc(), "a short text is longer than {}", sizeof text_);
    size_ = static_cast<std::uint8_t>(end.ptr - text_);
  }
  operator std::string_view() const { return {text_, size_}; }  // NOLINT(*-explicit-constructor)
  operator std::string() const { return {text_, size_}; }       // NOLINT(*-explicit-constructor)
  // Behind which there is room for all that a short text may have.
  char* copy_to(char* at) const {
    std::memcpy(at, text_, sizeof text_);
    return at + size_;
  }
  friend bool operator==(const ShortText& a, const ShortText& b) {
    return std::string_view(a) == std::string_view(b);
  }

 private:
  char text_[47];
  std::uint8_t size_ = 0;
};

// A number as text.
template <std::integral Number>
[[nodiscard]] ShortText digits(Number value) {
  ShortText text;
  text.add(value);
  return text;
}

// A letter with a number: a name.
template <std::integral Number>
[[nodiscard]] ShortText numbered(char letter, Number number) {
  ShortText text;
  text.add({&letter, 1});
  text.add(number);
  return text;
}

inline void append(std::string& to, TextParts parts) {
  for (const std::string_view part : parts) to += part;
}

[[nodiscard]] inline std::string concat(TextParts parts) {
  std::size_t size = 0;
  for (const std::string_view part : parts) size += part.size();
  std::string out;
  out.reserve(size);
  append(out, parts);
  return out;
}

}  // namespace inkle
