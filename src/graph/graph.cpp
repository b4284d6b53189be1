#include "graph/graph.h"

#include "base/error.h"

namespace inkle::graph {

ValueId Graph::add_value(Type type) {
  INKLE_CHECK(!type.strides || type.strides->size() == type.sizes.size(),
              "a type of rank {} with {} strides", type.sizes.size(), type.strides->size());
  types_.push_back(std::move(type));
  return ValueId{static_cast<std::uint32_t>(types_.size() - 1)};
}

void for_each_operand(const Node& node, const std::function<void(ValueId)>& f) {
  for (const Argument& argument : node.args) {
    if (const auto* value = std::get_if<ValueId>(&argument)) {
      if (!value->is_none()) f(*value);
    } else if (const auto* list = std::get_if<std::vector<ValueId>>(&argument)) {
      for (const ValueId v : *list) {
        if (!v.is_none()) f(v);
      }
    }
  }
}

void replace_operands(Node& node, const std::function<ValueId(ValueId)>& f) {
  for (Argument& argument : node.args) {
    if (auto* value = std::get_if<ValueId>(&argument)) {
      if (!value->is_none()) *value = f(*value);
    } else if (auto* list = std::get_if<std::vector<ValueId>>(&argument)) {
      for (ValueId& v : *list) {
        if (!v.is_none()) v = f(v);
      }
    }
  }
}

std::vector<std::uint32_t> use_counts(const Graph& graph) {
  std::vector<std::uint32_t> counts(graph.value_count(), 0);
  for (const Node& node : graph.nodes) {
    for_each_operand(node, [&](ValueId v) { ++counts[v.index]; });
  }
  for (const Output& output : graph.outputs) {
    if (const auto* v = std::get_if<ValueId>(&output.value)) ++counts[v->index];
  }
  return counts;
}

std::vector<std::int32_t> producers(const Graph& graph) {
  std::vector<std::int32_t> out(graph.value_count(), -1);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    for (const ValueId v : graph.nodes[i].results) out[v.index] = static_cast<std::int32_t>(i);
  }
  return out;
}

std::vector<ValueId> memory_owners(const Graph& graph) {
  std::vector<ValueId> owners(graph.value_count());
  for (std::uint32_t i = 0; i < owners.size(); ++i) owners[i] = ValueId{i};
  for (const Node& node : graph.nodes) {
    if (!has(node.op->traits, Trait::view) && !has(node.op->traits, Trait::effect)) continue;
    const auto* first = node.args.empty() ? nullptr : std::get_if<ValueId>(&node.args.front());
    if (first == nullptr || first->is_none()) continue;
    for (const ValueId v : node.results) owners[v.index] = owners[first->index];
  }
  return owners;
}

std::vector<bool> output_values(const Graph& graph) {
  std::vector<bool> out(graph.value_count(), false);
  for (const Output& output : graph.outputs) {
    if (const auto* v = std::get_if<ValueId>(&output.value)) out[v->index] = true;
  }
  return out;
}

}  // namespace inkle::graph
