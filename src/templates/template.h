// What every template has: what it is for, how it may be configured, what it needs and costs, and
// the kernel that it writes.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "abi/target.h"
#include "base/error.h"
#include "kernel/kernel.h"

namespace inkle::templates {

struct Estimate {
  sym::Expr stack_bytes;  // of a task, arrays in whole cache lines
  sym::Expr operations;   // multiplications and additions of all matrix products
};

template <class Problem, class Config>
struct Template {
  std::string_view name, doc;
  bool (*matches)(const Problem& problem) = nullptr;
  // What is worth measuring, the best guess first.
  std::vector<Config> (*configs)(const Problem& problem, const abi::Target& target) = nullptr;
  // What the problem lacks for this template; empty: nothing, and `emit` cannot fail.
  std::string (*needs)(const Problem& problem, const Config& config) = nullptr;
  Estimate (*estimate)(const Problem& problem, const Config& config) = nullptr;
  kernel::Kernel (*emit)(const Problem& problem, const Config& config,
                         sym::Context& context) = nullptr;
};

// The first of a table that matches.
template <class Problem, class Config>
[[nodiscard]] const Template<Problem, Config>& first_match(
    std::span<const Template<Problem, Config>> table, const Problem& problem) {
  for (const Template<Problem, Config>& row : table) {
    if (row.matches(problem)) return row;
  }
  INKLE_CHECK(false, "no template matches {}", problem.name);
  return table.front();
}

}  // namespace inkle::templates
