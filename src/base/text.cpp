#include "base/text.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace inkle {
namespace {

bool is_word_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word(char c) { return is_word_start(c) || is_digit(c); }

int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

void Scanner::skip() {
  while (position_ < text_.size()) {
    const char c = text_[position_];
    if (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
      ++position_;
    } else if (c == '#') {
      const std::size_t end = std::min(text_.find('\n', position_), text_.size());
      position_ = end;
    } else {
      break;
    }
  }
}

std::string Scanner::take_comment() {
  const std::size_t line_end = std::min(text_.find('\n', token_end_), text_.size());
  std::string_view rest = text_.substr(token_end_, line_end - token_end_);
  const std::size_t hash = rest.find('#');
  if (hash == std::string_view::npos) return {};
  if (rest.substr(0, hash).find_first_not_of(" \t\r") != std::string_view::npos) return {};
  rest.remove_prefix(hash + 1);
  while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
  while (!rest.empty() && (rest.back() == ' ' || rest.back() == '\r')) rest.remove_suffix(1);
  return std::string(rest);
}

void Scanner::consume(std::size_t count) {
  position_ += count;
  token_end_ = position_;
  skip();
}

bool Scanner::next_is(std::string_view token) const {
  if (text_.substr(position_, token.size()) != token) return false;
  const std::size_t end = position_ + token.size();
  return !(is_word(token.back()) && end < text_.size() && is_word(text_[end]));
}

bool Scanner::accept(std::string_view token) {
  if (!next_is(token)) return false;
  consume(token.size());
  return true;
}

void Scanner::expect(std::string_view token) {
  if (!accept(token)) fail(fmt::format("expected '{}'", token));
}

std::optional<std::string_view> Scanner::accept_identifier() {
  if (at_end() || !is_word_start(text_[position_])) return std::nullopt;
  std::size_t end = position_;
  while (end < text_.size() && (is_word(text_[end]) || text_[end] == '.')) ++end;
  const std::string_view word = text_.substr(position_, end - position_);
  consume(word.size());
  return word;
}

std::string_view Scanner::identifier() {
  const auto word = accept_identifier();
  if (!word) fail("expected a name");
  return *word;
}

bool Scanner::next_is_number() const {
  const char c = peek();
  if (is_digit(c)) return true;
  if (c == '-') {
    const std::string_view rest = text_.substr(position_ + 1);
    return !rest.empty() && (is_digit(rest.front()) || rest.substr(0, 3) == "inf");
  }
  return next_is("inf") || next_is("nan");
}

std::int64_t Scanner::integer() {
  std::int64_t value = 0;
  const char* begin = text_.data() + position_;
  const auto [end, code] = std::from_chars(begin, text_.data() + text_.size(), value);
  if (code == std::errc::result_out_of_range) fail("integer does not fit 64 bits");
  if (code != std::errc()) fail("expected an integer");
  consume(static_cast<std::size_t>(end - begin));
  return value;
}

double Scanner::number(bool& is_integer, std::int64_t& integer_value) {
  is_integer = false;
  if (accept("inf")) return std::numeric_limits<double>::infinity();
  if (accept("-inf")) return -std::numeric_limits<double>::infinity();
  if (accept("nan")) return std::numeric_limits<double>::quiet_NaN();
  std::size_t end = position_;
  if (end < text_.size() && text_[end] == '-') ++end;
  bool floating = false;
  while (end < text_.size()) {
    const char c = text_[end];
    const bool exponent_sign = (c == '-' || c == '+') && end > position_ &&
                               (text_[end - 1] == 'e' || text_[end - 1] == 'E');
    if (c == '.' || c == 'e' || c == 'E') floating = true;
    if (!is_digit(c) && c != '.' && c != 'e' && c != 'E' && !exponent_sign) break;
    ++end;
  }
  if (!floating) {
    is_integer = true;
    integer_value = integer();
    return static_cast<double>(integer_value);
  }
  double value = 0;
  const char* begin = text_.data() + position_;
  const auto [stop, code] = std::from_chars(begin, text_.data() + end, value);
  if (code == std::errc::invalid_argument || stop != text_.data() + end) fail("malformed number");
  if (code == std::errc::result_out_of_range) fail("number does not fit a double");
  consume(end - position_);
  return value;
}

std::string Scanner::quoted() {
  if (peek() != '"') fail("expected a quoted string");
  std::string out;
  std::size_t i = position_ + 1;
  for (;; ++i) {
    if (i >= text_.size() || text_[i] == '\n') fail("unterminated string");
    if (text_[i] == '"') break;
    if (text_[i] != '\\') {
      out += text_[i];
      continue;
    }
    ++i;
    if (i >= text_.size()) fail("unterminated string");
    if (text_[i] == 'n') {
      out += '\n';
    } else if (text_[i] == 'x') {
      if (i + 2 >= text_.size() || hex_digit(text_[i + 1]) < 0 || hex_digit(text_[i + 2]) < 0) {
        fail("\\x takes two hexadecimal digits");
      }
      out += static_cast<char>(hex_digit(text_[i + 1]) * 16 + hex_digit(text_[i + 2]));
      i += 2;
    } else if (text_[i] == '"' || text_[i] == '\\') {
      out += text_[i];
    } else {
      fail("unknown escape in string");
    }
  }
  consume(i + 1 - position_);
  return out;
}

std::string Scanner::where() const {
  std::size_t line = 1;
  std::size_t column = 1;
  const std::size_t stop = std::min(position_, text_.size());
  for (std::size_t i = 0; i < stop; ++i) {
    if (text_[i] == '\n') {
      ++line;
      column = 1;
    } else {
      ++column;
    }
  }
  return fmt::format("{}:{}:{}", file_, line, column);
}

void Scanner::fail(std::string_view message) const {
  const std::size_t stop = std::min(position_, text_.size());
  std::string_view rest = text_.substr(stop, 24);
  rest = rest.substr(0, rest.find('\n'));
  if (rest.empty()) throw UserError(fmt::format("{}: {} at the end of the text", where(), message));
  throw UserError(fmt::format("{}: {}, found {}", where(), message, quote(rest)));
}

std::string quote(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (byte < 32 || byte == 127) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string print_double(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

}  // namespace inkle
