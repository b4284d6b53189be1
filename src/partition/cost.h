// The cost of recomputing a node: the operations of its loops, counted after lowering it alone.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "graph/graph.h"

namespace inkle::partition {

// Throughputs of a machine that a partition weighs; from the machine's description.
struct Machine {
  double bytes_per_second = 40e9;
  double operations_per_second = 250e9;  // additions of f32, all threads
  // Saved activations are new memory at each call where the host's allocator returns freed memory
  // to the system: pages are zeroed when they are first written.
  bool clears_memory = true;
};

struct Work {
  double operations = 0;  // in additions
  double bytes = 0;       // of operands, read by more than a loop over results
};

// For each node marked in `wanted`, the work of recomputing it, at the hints of sizes; nothing for
// nodes that must not run twice: contractions, library calls, calls to eager, scans, sorts,
// scatters, and all whose sizes have no hint. Views cost nothing.
[[nodiscard]] std::vector<std::optional<Work>> recompute_work(const graph::Graph& graph,
                                                              const std::vector<bool>& wanted);

// Bytes of a tensor with all its elements, at the hints of sizes.
[[nodiscard]] std::int64_t bytes_of(const graph::Graph& graph, graph::ValueId value);

}  // namespace inkle::partition
