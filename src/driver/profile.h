// What each kernel and library call of a program takes, against what the machine allows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "driver/inspect.h"

namespace inkle::driver {

// Steps that are alike: one kernel, or one library call on operands of equal size.
struct ProfileRow {
  std::string kind;    // "kernel", "matmul", "convolution", "attention", "eager"
  std::string name;    // the kernel, or the library's algorithm
  std::string label;   // the ops it came from
  std::string source;  // the user's line of the first
  std::uint32_t calls = 0;
  double microseconds = 0;  // of all calls, as all below
  std::optional<std::int64_t> bytes;
  std::optional<std::int64_t> flops;
  std::optional<double> limit_microseconds;  // what the limits of the machine allow
  std::string limit;                         // the one that binds: "memory", "compute"
};

// The dearest first; without prepare steps. Needs step_microseconds, slots and limits.
[[nodiscard]] std::vector<ProfileRow> profile_rows(const Inspection& inspection);

// A table of these, at most `most` lines, and a line for their sum.
[[nodiscard]] std::string profile_text(const std::vector<ProfileRow>& rows, std::size_t most = 40);

}  // namespace inkle::driver
