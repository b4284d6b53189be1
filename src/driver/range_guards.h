// The ranges of a graph's sizes as guards of its plan. Under torch Dynamo has checked sizes before
// a call; a package is called by anyone, and its code relies on the ranges that the graph states.
#pragma once

#include <cstdint>
#include <vector>

#include "abi/plan.h"
#include "graph/graph.h"

namespace inkle::driver {

// Of one symbol, as a size of an argument or as an integer argument itself.
struct SizeRange {
  std::uint32_t argument = 0;
  std::uint32_t dimension = 0;  // of a tensor
  std::int64_t low = 0, high = 0;
  std::int64_t divisor = 1;
};
// Before the graph is compiled, which takes it away.
[[nodiscard]] std::vector<SizeRange> ranges_of(const graph::Graph& graph);

// With a guard for each bound, and one for the divisor, that says something.
[[nodiscard]] abi::Plan with_guards(abi::Plan plan, const std::vector<SizeRange>& ranges);

}  // namespace inkle::driver
