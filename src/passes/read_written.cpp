#include "passes/read_written.h"

#include <algorithm>

#include "passes/rules.h"

namespace inkle::passes {
namespace {

using graph::Graph;
using graph::has;
using graph::Node;
using graph::Trait;
using graph::ValueId;

// An op in eager that cannot write to its operands: one of ours, or one of ATen whose name says so.
bool only_reads(const Node& node) {
  if (!node.eager_target) return false;
  if (node.op != &graph::kEagerOp) return true;
  const std::string_view name = std::get<std::string>(node.args.front());
  const std::string_view base = name.substr(0, name.find('.'));
  return name.starts_with("aten::") && !base.ends_with('_') &&
         name.find("out", base.size()) == std::string_view::npos;
}

bool reads(const Node& node, const std::function<bool(ValueId)>& is_one) {
  bool found = false;
  graph::for_each_operand(node, [&](ValueId v) { found = found || is_one(v); });
  return found;
}

bool are_alike(Graph& graph, ValueId x, ValueId y) {
  const graph::Type& to = graph.type(x);
  const graph::Type& from = graph.type(y);
  const auto strides = [&](const graph::Type& t) {
    return t.strides ? *t.strides : graph::contiguous_strides(graph.context(), t.sizes);
  };
  return to.dtype == from.dtype && to.device == from.device && to.sizes == from.sizes &&
         strides(to) == strides(from);
}

// copy_(x, y) of an input x that nothing else writes to goes behind what makes y, if what lies
// between does not have x.
bool read_from(Graph& graph, ValueId x, ValueId y, ValueId written) {
  const std::vector<ValueId> owners = graph::memory_owners(graph);
  const std::vector<std::int32_t> producers = graph::producers(graph);
  const std::int32_t made = producers[y.index];
  if (producers[x.index] >= 0 || made < 0 || owners[y.index] == x || !are_alike(graph, x, y)) {
    return false;
  }
  const auto has_x = [&](const Node& node) {
    return reads(node, [&](ValueId v) { return owners[v.index] == x; });
  };
  const auto writes_x = [&](const Node& node) {
    return has(node.op->traits, Trait::effect) && has_x(node);
  };
  const auto is_reader = [&](const Node& node) {
    return only_reads(node) && reads(node, [&](ValueId v) { return v == y; });
  };
  auto& nodes = graph.nodes;
  const auto first = nodes.begin() + made + 1;
  const auto copy = nodes.begin() + producers[written.index];
  if (std::ranges::count_if(nodes, writes_x) != 1 || std::any_of(first, copy, has_x) ||
      std::none_of(first, nodes.end(), is_reader)) {
    return false;
  }
  std::rotate(first, copy, copy + 1);
  for (auto node = first + 1; node != nodes.end(); ++node) {
    if (!is_reader(*node)) continue;
    graph::replace_operands(*node, [&](ValueId v) { return v == y ? written : v; });
  }
  return true;
}

}  // namespace

std::optional<Graph> read_written(const Graph& graph, PassContext&) {
  std::vector<bool> is_read(graph.value_count(), false);
  for (const Node& node : graph.nodes) {
    if (!only_reads(node)) continue;
    graph::for_each_operand(node, [&](ValueId v) { is_read[v.index] = true; });
  }
  Graph out = graph;
  bool changed = false;
  for (const Match& copy : find_all(graph, "copy_(x, y, ...)")) {
    const ValueId y = copy.value("y");
    if (!is_read[y.index]) continue;
    changed = read_from(out, copy.value("x"), y, copy.root()) || changed;
  }
  if (!changed) return std::nullopt;
  return out;
}

}  // namespace inkle::passes
