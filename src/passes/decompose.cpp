#include "passes/decompose.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>

#include "base/error.h"
#include "base/unsupported.h"
#include "graph/builder.h"

namespace inkle::passes {
namespace {

using graph::Graph;
using graph::Node;
using graph::Rewriter;
using graph::ValueId;

// Rows refer to simpler rows; a chain longer than this is a cycle in the table.
constexpr int kMaxDepth = 16;

bool is_composite(const Node& node) { return node.op->decompose != nullptr; }

std::vector<ValueId> expand(graph::Builder& builder, const Node& node, const std::string& source) {
  const std::string note = fmt::format("in the decomposition of {}{}{}", node.op->name,
                                       source.empty() ? "" : " at ", source);
  return at_node(source, note, [&] { return node.op->decompose(builder, node); });
}

// `failed`: sources of nodes that stay as they are.
Graph expand_once(const Graph& graph, UnsupportedNodes& found, std::set<std::string>& failed) {
  Rewriter rewriter(graph, graph.name);
  return std::move(rewriter).run([&](Rewriter& r, const Node& mapped,
                                     const Node& original) -> std::optional<std::vector<ValueId>> {
    if (!is_composite(mapped) || failed.contains(original.source)) return std::nullopt;
    std::optional<std::vector<ValueId>> results;
    const bool is_known = !original.source.empty();
    const auto work = [&] { results = expand(r.builder(), mapped, original.source); };
    if (!is_known) work();
    if (is_known && !found.run(work)) failed.insert(original.source);
    return results;
  });
}

}  // namespace

std::optional<Graph> decompose(const Graph& graph, PassContext&) {
  std::optional<Graph> out;
  UnsupportedNodes found;  // all in the graph, for one error
  std::set<std::string> failed;
  const auto is_left = [&](const Node& node) {
    return is_composite(node) && !failed.contains(node.source);
  };
  for (int depth = 0;; ++depth) {
    const Graph& now = out ? *out : graph;
    const auto composite = std::ranges::find_if(now.nodes, is_left);
    if (composite == now.nodes.end()) {
      found.check();
      return out;
    }
    INKLE_CHECK(depth < kMaxDepth, "the decomposition of {} does not end", composite->op->name);
    out = expand_once(now, found, failed);
  }
}

}  // namespace inkle::passes
