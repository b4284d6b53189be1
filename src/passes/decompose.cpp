#include "passes/decompose.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
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

Graph expand_once(const Graph& graph) {
  Rewriter rewriter(graph, graph.name);
  return std::move(rewriter).run([](Rewriter& r, const Node& mapped,
                                    const Node& original) -> std::optional<std::vector<ValueId>> {
    if (!is_composite(mapped)) return std::nullopt;
    try {
      return mapped.op->decompose(r.builder(), mapped);
    } catch (Error& error) {
      error.add_note(fmt::format("in the decomposition of {}{}{}", mapped.op->name,
                                 original.source.empty() ? "" : " at ", original.source));
      throw;
    }
  });
}

}  // namespace

std::optional<Graph> decompose(const Graph& graph, PassContext&) {
  std::optional<Graph> out;
  for (int depth = 0;; ++depth) {
    const Graph& now = out ? *out : graph;
    const auto composite = std::ranges::find_if(now.nodes, is_composite);
    if (composite == now.nodes.end()) return out;
    INKLE_CHECK(depth < kMaxDepth, "the decomposition of {} does not end", composite->op->name);
    out = expand_once(now);
  }
}

}  // namespace inkle::passes
