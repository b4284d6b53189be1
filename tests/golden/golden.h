// Golden tests: text in, text out, whole. A file tests/**/*.test holds cases:
//
//   // run: opt --passes=cse
//   // --- in
//   graph @f(..) {..}
//   // --- out
//   graph @f(..) {..}
//
// "// --- error" instead of "// --- out" holds the message of the exception. A case keeps the run
// line of the one before it; other lines that start with "//" are comments and end a section. What
// is neither, nor in a section, is an error: no expectation is left unread.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace inkle::golden {

// A command takes the text of the "in" section and the words of the run line behind its name.
struct Command {
  std::string_view name;
  std::string (*run)(std::string_view text, std::span<const std::string> args) = nullptr;
};
// By name; one line a command in commands.cpp.
[[nodiscard]] std::span<const Command> commands();

struct Case {
  std::size_t line = 0;              // of its "--- in", from 1
  std::vector<std::string> command;  // words of the run line
  std::string in;
  std::string expected;
  bool expects_error = false;
  // Lines of the expected section in the file: [first, last).
  std::size_t first = 0, last = 0;
};

// Throws UserError with file and line where the file is malformed.
[[nodiscard]] std::vector<Case> read_cases(const std::filesystem::path& file);

struct Outcome {
  std::string text;
  bool is_error = false;
};
[[nodiscard]] Outcome run_case(const Case& test);
// Writes outcomes into the file in place of what was expected.
void update(const std::filesystem::path& file);

}  // namespace inkle::golden
