#include "passes/effects.h"

namespace inkle::passes {

using graph::Graph;
using graph::has;
using graph::Node;
using graph::Trait;
using graph::ValueId;

std::vector<bool> mutated_values(const Graph& graph) {
  const std::vector<ValueId> owner = memory_owners(graph);
  std::vector<bool> mutated(graph.value_count(), false);
  for (const Node& node : graph.nodes) {
    const auto* first = node.args.empty() ? nullptr : std::get_if<ValueId>(&node.args.front());
    if (first == nullptr || first->is_none()) continue;
    if (has(node.op->traits, Trait::effect)) mutated[owner[first->index].index] = true;
  }
  for (std::uint32_t i = 0; i < owner.size(); ++i) {
    if (mutated[owner[i].index]) mutated[i] = true;
  }
  return mutated;
}

std::size_t first_effect(const Graph& graph) {
  std::size_t i = 0;
  while (i < graph.nodes.size() && !has(graph.nodes[i].op->traits, Trait::effect)) ++i;
  return i;
}

}  // namespace inkle::passes
