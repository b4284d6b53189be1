#include "golden/golden.h"

#include <fstream>
#include <sstream>

#include "base/error.h"

namespace inkle::golden {
namespace {

std::vector<std::string> read_lines(const std::filesystem::path& file) {
  std::ifstream in(file);
  if (!in) user_error("{}: cannot be read", file.string());
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::vector<std::string> words(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> out;
  for (std::string word; in >> word;) out.push_back(word);
  return out;
}

bool is_marker(const std::string& line) { return line.starts_with("//"); }

// The lines from `first` up to the next marker, blank ones at the end left out.
std::size_t section_end(const std::vector<std::string>& lines, std::size_t first) {
  std::size_t end = first;
  while (end < lines.size() && !is_marker(lines[end])) ++end;
  while (end > first && lines[end - 1].empty()) --end;
  return end;
}

std::string join(const std::vector<std::string>& lines, std::size_t first, std::size_t last) {
  std::string out;
  for (std::size_t i = first; i < last; ++i) out += lines[i] + "\n";
  return out;
}

}  // namespace

std::vector<Case> read_cases(const std::filesystem::path& file) {
  const std::vector<std::string> lines = read_lines(file);
  std::vector<Case> cases;
  std::vector<std::string> command;
  bool open = false;
  const auto check_closed = [&] {
    if (open) user_error("{}:{}: no expected section", file.string(), cases.back().line);
  };
  std::size_t read = 0;  // the lines of a section end here
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string& line = lines[i];
    if (!is_marker(line)) {
      if (i >= read && !line.empty()) {
        user_error("{}:{}: text in no section", file.string(), i + 1);
      }
    } else if (line.starts_with("// run:")) {
      command = words(line.substr(7));
    } else if (line == "// --- in") {
      if (command.empty()) user_error("{}:{}: no run line before it", file.string(), i + 1);
      check_closed();
      const std::size_t end = read = section_end(lines, i + 1);
      cases.push_back({.line = i + 1, .command = command, .in = join(lines, i + 1, end)});
      open = true;
    } else if (line == "// --- out" || line == "// --- error") {
      if (!open) user_error("{}:{}: no '--- in' before it", file.string(), i + 1);
      Case& test = cases.back();
      test.first = i;
      test.last = read = section_end(lines, i + 1);
      test.expected = join(lines, i + 1, test.last);
      test.expects_error = line == "// --- error";
      open = false;
    } else if (line.starts_with("// ---")) {
      user_error("{}:{}: unknown section '{}'", file.string(), i + 1, line);
    }
  }
  if (cases.empty()) user_error("{}: holds no case", file.string());
  check_closed();
  return cases;
}

Outcome run_case(const Case& test) {
  for (const Command& command : commands()) {
    if (command.name != test.command.front()) continue;
    const std::span<const std::string> args(test.command);
    Outcome outcome;
    try {
      outcome.text = command.run(test.in, args.subspan(1));
    } catch (const Error& error) {
      outcome = {.text = error.what(), .is_error = true};
    }
    if (!outcome.text.empty() && outcome.text.back() != '\n') outcome.text += '\n';
    return outcome;
  }
  user_error("unknown command '{}'", test.command.front());
}

void update(const std::filesystem::path& file) {
  const std::vector<std::string> lines = read_lines(file);
  std::string out;
  std::size_t at = 0;
  for (const Case& test : read_cases(file)) {
    const Outcome outcome = run_case(test);
    out += join(lines, at, test.first);
    out += outcome.is_error ? "// --- error\n" : "// --- out\n";
    out += outcome.text;
    at = test.last;
  }
  out += join(lines, at, lines.size());
  std::ofstream(file) << out;
}

}  // namespace inkle::golden
