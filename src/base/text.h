// A scanner for the text forms of all IRs: skips blanks and comments, keeps line and column, and
// fails with a UserError that names file, line and column. Also the identifier rules they share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace inkle {

class Scanner {
 public:
  // `text` must outlive the scanner. `file` is used in messages only. Comments run from '#' to the
  // end of the line; the last one skipped can be asked for (source lines travel in comments).
  Scanner(std::string_view text, std::string_view file) : text_(text), file_(file) { skip(); }

  [[nodiscard]] bool at_end() const { return position_ >= text_.size(); }
  // The next character after blanks, '\0' at the end.
  [[nodiscard]] char peek() const { return at_end() ? '\0' : text_[position_]; }
  [[nodiscard]] bool next_is(std::string_view token) const;
  // Takes `token` if it comes next (a word token must end there: "in" does not accept "into").
  bool accept(std::string_view token);
  void expect(std::string_view token);
  // [A-Za-z_][A-Za-z0-9_.]*
  [[nodiscard]] std::string_view identifier();
  [[nodiscard]] std::optional<std::string_view> accept_identifier();
  // Optional minus and digits; a value beyond 64 bits is an error.
  [[nodiscard]] std::int64_t integer();
  [[nodiscard]] bool next_is_number() const;
  // An integer or floating literal, also inf, -inf and nan; sets is_integer.
  [[nodiscard]] double number(bool& is_integer, std::int64_t& integer_value);
  // "..." with \n, \", \\ and \xHH.
  [[nodiscard]] std::string quoted();
  // Comment text on the line of the last consumed token, without '#' and blanks around; then
  // forgotten. Call it right after the last token of a line.
  [[nodiscard]] std::string take_comment();

  struct Mark {
    std::size_t position, token_end;
  };
  [[nodiscard]] Mark mark() const { return {position_, token_end_}; }
  void reset(Mark mark) {
    position_ = mark.position;
    token_end_ = mark.token_end;
  }

  [[noreturn]] void fail(std::string_view message) const;
  [[nodiscard]] std::string where() const;  // "file:line:column"

 private:
  void skip();
  void consume(std::size_t count);

  std::string_view text_;
  std::string_view file_;
  std::size_t position_ = 0;
  std::size_t token_end_ = 0;
  std::string comment_;
};

// The quoted form that Scanner::quoted reads back.
[[nodiscard]] std::string quote(std::string_view text);
// Shortest decimal that reads back to the same double; always with '.', 'e', "inf" or "nan".
[[nodiscard]] std::string print_double(double value);

}  // namespace inkle
