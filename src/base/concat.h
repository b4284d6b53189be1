// Text put together of parts, where there is too much of it for formats.
#pragma once

#include <charconv>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <string>
#include <string_view>

namespace inkle {

using TextParts = std::initializer_list<std::string_view>;

// A number as text.
[[nodiscard]] inline std::string digits(std::int64_t value) {
  char text[24];
  return {text, std::to_chars(text, std::end(text), value).ptr};
}

// A letter with a number: a name.
[[nodiscard]] inline std::string numbered(char letter, std::int64_t number) {
  char text[24] = {letter};
  return {text, std::to_chars(text + 1, std::end(text), number).ptr};
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
