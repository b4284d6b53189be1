#include "passes/dce.h"

#include <algorithm>

namespace inkle::passes {

using graph::Graph;
using graph::has;
using graph::Node;
using graph::Trait;
using graph::ValueId;

std::optional<Graph> dce(const Graph& graph, PassContext&) {
  std::vector<bool> live = graph::output_values(graph);
  std::vector<bool> keep(graph.nodes.size());
  for (std::size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    keep[i] = has(node.op->traits, Trait::effect) || has(node.op->traits, Trait::eager_only) ||
              std::ranges::any_of(node.results, [&](ValueId v) { return live[v.index]; });
    if (!keep[i]) continue;
    graph::for_each_operand(node, [&](ValueId v) { live[v.index] = true; });
  }
  const bool dead_literal = std::ranges::any_of(
      graph.constants, [&](const auto& constant) { return !live[constant.first.index]; });
  if (std::ranges::find(keep, false) == keep.end() && !dead_literal) return std::nullopt;
  Graph out = graph;
  out.nodes.clear();
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    if (keep[i]) out.nodes.push_back(graph.nodes[i]);
  }
  std::erase_if(out.constants, [&](const auto& constant) { return !live[constant.first.index]; });
  return out;
}

}  // namespace inkle::passes
