#include "passes/read_written.h"

#include <algorithm>
#include <iterator>
#include <utility>

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

bool are_alike(Graph& graph, ValueId x, ValueId y) {
  const graph::Type& to = graph.type(x);
  const graph::Type& from = graph.type(y);
  const auto strides = [&](const graph::Type& t) {
    return t.strides ? *t.strides : graph::contiguous_strides(graph.context(), t.sizes);
  };
  return to.dtype == from.dtype && to.device == from.device && to.sizes == from.sizes &&
         strides(to) == strides(from);
}

// One copy_(x, y), where x is an input that nothing else writes to.
class WrittenCopy {
 public:
  WrittenCopy(Graph& graph, ValueId x, ValueId y, ValueId written)
      : graph_(graph), x_(x), y_(y), producers_(graph::producers(graph)) {
    instead_.emplace_back(y, written);
    copy_ = static_cast<std::size_t>(producers_[written.index]);
  }

  // The copy goes behind what makes y, if what lies between does not have x.
  bool run() {
    if (producers_[x_.index] >= 0 || producers_[y_.index] < 0 || !are_alike(graph_, x_, y_)) {
      return false;
    }
    const auto first = static_cast<std::size_t>(producers_[y_.index]) + 1;
    if (!may_move(first)) return false;
    std::vector<Node> later;
    for (std::size_t i = first; i < graph_.nodes.size(); ++i) {
      if (i == copy_) continue;
      later.push_back(graph_.nodes[i]);
      if (!only_reads(later.back())) continue;
      graph::replace_operands(later.back(), [&](ValueId v) { return is_of_y(v) ? remade(v) : v; });
    }
    Node copy = graph_.nodes[copy_];
    graph_.nodes.resize(first);
    graph_.nodes.push_back(std::move(copy));
    std::ranges::move(views_, std::back_inserter(graph_.nodes));
    std::ranges::move(later, std::back_inserter(graph_.nodes));
    return true;
  }

 private:
  bool may_move(std::size_t first) const {
    const std::vector<ValueId> owners = graph::memory_owners(graph_);
    std::size_t writes = 0;
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      bool has_x = false;
      graph::for_each_operand(graph_.nodes[i],
                              [&](ValueId v) { has_x = has_x || owners[v.index] == x_; });
      if (has_x && i >= first && i < copy_) return false;
      writes += has_x && has(graph_.nodes[i].op->traits, Trait::effect) ? 1 : 0;
    }
    return writes == 1 && owners[y_.index] != x_;
  }

  // Views that eager makes have memory of their own.
  const Node* view_that_makes(ValueId v) const {
    const std::int32_t at = producers_[v.index];
    if (at < 0) return nullptr;
    const Node& node = graph_.nodes[static_cast<std::size_t>(at)];
    return has(node.op->traits, Trait::view) && !node.eager_target ? &node : nullptr;
  }
  static ValueId base(const Node& view) { return std::get<ValueId>(view.args.front()); }

  bool is_of_y(ValueId v) const {
    while (v != y_) {
      const Node* view = view_that_makes(v);
      if (view == nullptr) return false;
      v = base(*view);
    }
    return true;
  }

  // The same view of what was written.
  ValueId remade(ValueId v) {
    const auto known = std::ranges::find(instead_, v, &std::pair<ValueId, ValueId>::first);
    if (known != instead_.end()) return known->second;
    Node view = *view_that_makes(v);
    view.args.front() = remade(base(view));
    ValueId found;
    for (ValueId& result : view.results) {
      const ValueId made = graph_.add_value(graph::Type(graph_.type(result)));
      instead_.emplace_back(result, made);
      if (result == v) found = made;
      result = made;
    }
    views_.push_back(std::move(view));
    return found;
  }

  Graph& graph_;
  ValueId x_, y_;
  std::vector<std::int32_t> producers_;
  std::size_t copy_ = 0;
  std::vector<std::pair<ValueId, ValueId>> instead_;
  std::vector<Node> views_;
};

// For each value whether an op in eager reads it or a view of it.
std::vector<bool> read_in_eager(const Graph& graph) {
  std::vector<bool> is_read(graph.value_count(), false);
  for (auto node = graph.nodes.rbegin(); node != graph.nodes.rend(); ++node) {
    const bool hands_on =
        has(node->op->traits, Trait::view) &&
        std::ranges::any_of(node->results, [&](ValueId v) { return is_read[v.index]; });
    if (!hands_on && !only_reads(*node)) continue;
    graph::for_each_operand(*node, [&](ValueId v) { is_read[v.index] = true; });
  }
  return is_read;
}

}  // namespace

std::optional<Graph> read_written(const Graph& graph, PassContext&) {
  const std::vector<bool> is_read = read_in_eager(graph);
  Graph out = graph;
  bool changed = false;
  for (const Match& copy : find_all(graph, "copy_(x, y, ...)")) {
    const ValueId y = copy.value("y");
    if (!is_read[y.index]) continue;
    changed = WrittenCopy(out, copy.value("x"), y, copy.root()).run() || changed;
  }
  if (!changed) return std::nullopt;
  return out;
}

}  // namespace inkle::passes
