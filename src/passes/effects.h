// What nodes with effects change, for passes that would otherwise move reads across them.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace inkle::passes {

// For each value whether it is, or is a view of, memory that some node with effect changes: its
// first operand, traced through views to the value that owns the memory.
[[nodiscard]] std::vector<bool> mutated_values(const graph::Graph& graph);
// Position of the first node with effect; the number of nodes if there is none.
[[nodiscard]] std::size_t first_effect(const graph::Graph& graph);

}  // namespace inkle::passes
