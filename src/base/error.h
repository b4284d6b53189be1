// Errors of the compiler: three kinds of exception, thrown anywhere, caught once (driver, C API).
// Notes are added while unwinding, so that a message names the stage, the op and the source line.
#pragma once

#include <fmt/format.h>

#include <exception>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace inkle {

class Error : public std::exception {
 public:
  explicit Error(std::string message) : message_(std::move(message)), text_(message_) {}

  // One line more of context, innermost first: "in op softmax at model.py:12".
  void add_note(std::string_view note);

  [[nodiscard]] const std::string& message() const { return message_; }
  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }
  [[nodiscard]] const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string message_;
  std::vector<std::string> notes_;
  std::string text_;
};

// The program or file given by the user is wrong.
class UserError : public Error {
 public:
  using Error::Error;
};

// A right program that Inkle does not compile: the driver falls back to eager and logs why.
class Unsupported : public Error {
 public:
  using Error::Error;
};

// A bug of ours.
class InternalError : public Error {
 public:
  using Error::Error;
};

template <class... Args>
[[noreturn]] void user_error(fmt::format_string<Args...> format, Args&&... args) {
  throw UserError(fmt::format(format, std::forward<Args>(args)...));
}

template <class... Args>
[[noreturn]] void unsupported(fmt::format_string<Args...> format, Args&&... args) {
  throw Unsupported(fmt::format(format, std::forward<Args>(args)...));
}

[[noreturn]] void check_failed(const char* condition, const char* file, int line,
                               std::string message);

}  // namespace inkle

// For what no input can trigger; what an input can trigger throws UserError or Unsupported.
#define INKLE_CHECK(condition, ...)                                                      \
  do {                                                                                   \
    if (!(condition)) [[unlikely]]                                                       \
      ::inkle::check_failed(#condition, __FILE__, __LINE__, ::fmt::format(__VA_ARGS__)); \
  } while (false)
