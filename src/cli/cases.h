// Recorded graphs as text, many in a file: what `inkle corpus` compiles and runs.
//
//   case models/gpt2/f32 training        # a name, then options
//   input -0.5 0.5                       # of each tensor input the range of its random numbers
//   graph @g(%x: f32[4]) -> f32[4] {
//     ...
//   }
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/arguments.h"
#include "driver/pipeline.h"

namespace inkle::cli {

struct Case {
  std::string name;                  // without blanks
  std::vector<std::string> options;  // training, deterministic, fast-numerics, no-run
  std::vector<Range> inputs;
  std::string text;

  [[nodiscard]] bool has(std::string_view option) const;
  // Sets what the options ask of the compiler.
  void apply(driver::CompileOptions& compile) const;
};

// UserError names file and line: an option or a line that is not known, a name that occurs twice.
[[nodiscard]] std::vector<Case> parse_cases(std::string_view text, std::string_view file);
[[nodiscard]] std::vector<Case> read_cases(const std::string& path);
[[nodiscard]] std::string to_string(const Case& c);

// Every sample of every row of the op table: fixed sizes in all of its dtypes, and other classes of
// shapes in the first of them.
[[nodiscard]] std::vector<Case> sample_cases();

}  // namespace inkle::cli
