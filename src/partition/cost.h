// What it costs to compute a node again: its loops, recorded by lowering it alone, counted.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "graph/graph.h"

namespace inkle::partition {

// How fast a machine is at what a cut weighs; from its description.
struct Machine {
  double bytes_per_second = 40e9;
  double operations_per_second = 250e9;  // additions of f32, all threads
  // Memory that is kept from the forward to the backward is new at each call where the host's
  // allocator gives it back to the system: pages are cleared when they are first written.
  bool clears_memory = true;
};

struct Work {
  double operations = 0;  // in additions
  double bytes = 0;       // of operands, read by more than a loop over results
};

// For each node marked in `wanted`, what it takes to compute it, at the hints of sizes; nothing for
// what must not be done twice: contractions, library calls, calls to eager, scans, sorts, scatters,
// and all whose sizes have no hint. Views take nothing.
[[nodiscard]] std::vector<std::optional<Work>> recompute_work(const graph::Graph& graph,
                                                              const std::vector<bool>& wanted);

// Bytes of a tensor with all its elements, at the hints of sizes.
[[nodiscard]] std::int64_t bytes_of(const graph::Graph& graph, graph::ValueId value);

}  // namespace inkle::partition
