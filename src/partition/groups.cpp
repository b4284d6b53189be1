#include "partition/groups.h"

#include <algorithm>
#include <numeric>

namespace inkle::partition {
namespace {

using graph::Graph;
using graph::has;
using graph::Node;
using graph::Trait;
using graph::ValueId;

bool is_view(const Node& node) { return has(node.op->traits, Trait::view); }

// A reduction of other than the last dimensions: its kernel ends before a result can be read.
bool sums_rows(const Graph& graph, const Node& node) {
  if (!has(node.op->traits, Trait::reduction) || node.results.empty()) return false;
  bool is_rows = false;
  const graph::Sizes& result = graph.type(node.results.front()).sizes;
  graph::for_each_operand(node, [&](ValueId v) {
    const graph::Sizes& sizes = graph.type(v).sizes;
    for (std::size_t d = 0; d < std::min(sizes.size(), result.size()); ++d) {
      // The first dimension that differs is reduced; all from there on must be.
      if (sizes[d] == result[d]) continue;
      for (std::size_t e = d; e < result.size(); ++e) {
        is_rows = is_rows || !result[e].is_constant(1);
      }
      return;
    }
  });
  return is_rows;
}

// How many library calls and sums over rows stand before a node and its results.
class Levels {
 public:
  explicit Levels(const Problem& problem)
      : of_node_(problem.joint.nodes.size(), 0), of_value_(problem.joint.value_count(), 0) {}

  void add(const Graph& graph, std::size_t i) {
    const Node& node = graph.nodes[i];
    graph::for_each_operand(
        node, [&](ValueId v) { of_node_[i] = std::max(of_node_[i], of_value_[v.index]); });
    const bool ends = Roles::is_library(node) || sums_rows(graph, node);
    for (const ValueId v : node.results) of_value_[v.index] = of_node_[i] + (ends ? 1 : 0);
  }
  [[nodiscard]] std::uint32_t of_node(std::size_t i) const { return of_node_[i]; }

 private:
  std::vector<std::uint32_t> of_node_, of_value_;
};

std::vector<bool> find_stored(const Problem& problem) {
  const Graph& graph = problem.joint;
  Levels levels(problem);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    if (problem.roles.in_forward(i)) levels.add(graph, i);
  }
  std::vector<std::uint32_t> last_reader(graph.value_count(), 0);
  std::vector<bool> stored(graph.value_count());
  for (std::size_t i = graph.nodes.size(); i-- > 0;) {
    if (!problem.roles.in_forward(i)) continue;
    const Node& node = graph.nodes[i];
    std::uint32_t of_views = 0;
    for (const ValueId v : node.results) {
      of_views = std::max(of_views, last_reader[v.index]);
      stored[v.index] = problem.roles.is_stored(i, v) || last_reader[v.index] > levels.of_node(i);
    }
    const std::uint32_t reader = is_view(node) ? of_views : levels.of_node(i);
    graph::for_each_operand(
        node, [&](ValueId v) { last_reader[v.index] = std::max(last_reader[v.index], reader); });
  }
  return stored;
}

class Union {
 public:
  explicit Union(std::size_t count) : parent_(count) {
    std::iota(parent_.begin(), parent_.end(), std::uint32_t{0});
  }
  std::uint32_t find(std::uint32_t i) {
    while (parent_[i] != i) i = parent_[i] = parent_[parent_[i]];
    return i;
  }
  void join(std::uint32_t a, std::uint32_t b) { parent_[find(a)] = find(b); }

 private:
  std::vector<std::uint32_t> parent_;
};

// Nodes that depend on a tangent, joined where one reads the other or both read the same.
class Backward {
 public:
  explicit Backward(const Problem& problem)
      : problem_(problem),
        graph_(problem.joint),
        levels_(problem),
        groups_(graph_.nodes.size()),
        readers_(graph_.value_count()),
        source_(graph_.value_count()) {
    for (std::uint32_t v = 0; v < source_.size(); ++v) source_[v] = {v};
  }

  std::vector<std::vector<ValueId>> run() {
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (!is_late(i)) continue;
      levels_.add(graph_, i);
      join(i);
    }
    return collect();
  }

 private:
  bool is_late(std::size_t i) const {
    return problem_.roles.is_late(i) && problem_.roles.in_backward(i);
  }
  bool is_alone(std::size_t i) const { return Roles::is_library(graph_.nodes[i]); }

  void join(std::size_t i) {
    const Node& node = graph_.nodes[i];
    if (is_view(node)) {
      const auto* base = std::get_if<ValueId>(&node.args.front());
      for (const ValueId v : node.results) {
        if (base != nullptr) source_[v.index] = source_[base->index];
      }
      return;
    }
    if (is_alone(i)) return;
    const auto me = static_cast<std::uint32_t>(i);
    graph::for_each_operand(node, [&](ValueId operand) {
      const ValueId v = source_[operand.index];
      const std::int32_t from = problem_.producer[v.index];
      if (from >= 0) {
        const auto j = static_cast<std::size_t>(from);
        if (!is_late(j)) return;
        if (!is_alone(j) && levels_.of_node(j) == levels_.of_node(i)) {
          groups_.join(me, static_cast<std::uint32_t>(j));
          return;
        }
      } else if (!problem_.roles.is_tangent_value(v)) {
        return;
      }
      for (const std::uint32_t other : readers_[v.index]) {
        if (levels_.of_node(other) == levels_.of_node(i)) groups_.join(me, other);
      }
      readers_[v.index].push_back(me);
    });
  }

  std::vector<std::vector<ValueId>> collect() {
    std::vector<std::vector<ValueId>> reads(graph_.nodes.size());
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (!is_late(i) || is_view(graph_.nodes[i])) continue;
      auto& list = reads[groups_.find(static_cast<std::uint32_t>(i))];
      graph::for_each_operand(graph_.nodes[i], [&](ValueId v) {
        const std::int32_t from = problem_.producer[v.index];
        const bool is_early = from >= 0 ? !is_late(static_cast<std::size_t>(from))
                                        : !problem_.roles.is_tangent_value(v);
        if (is_early && !problem_.roles.is_literal(v)) list.push_back(v);
      });
    }
    std::erase_if(reads, [](const auto& list) { return list.empty(); });
    const auto less = [](ValueId a, ValueId b) { return a.index < b.index; };
    const auto same = [](ValueId a, ValueId b) { return a.index == b.index; };
    for (auto& list : reads) {
      std::ranges::sort(list, less);
      list.erase(std::unique(list.begin(), list.end(), same), list.end());
    }
    return reads;
  }

  const Problem& problem_;
  const Graph& graph_;
  Levels levels_;
  Union groups_;
  std::vector<std::vector<std::uint32_t>> readers_;  // by value that a kernel before them made
  std::vector<ValueId> source_;                      // by value: what it is a view of
};

}  // namespace

Groups find_groups(const Problem& problem) {
  return {.reads = Backward(problem).run(), .is_stored = find_stored(problem)};
}

}  // namespace inkle::partition
