#include "passes/reinplace.h"

#include <algorithm>

#include "passes/rules.h"

namespace inkle::passes {
namespace {

using graph::Graph;
using graph::has;
using graph::Node;
using graph::Trait;
using graph::ValueId;

class Marker {
 public:
  explicit Marker(const Graph& graph)
      : graph_(graph), owner_(graph.value_count()), producer_(graph::producers(graph)) {
    for (std::uint32_t i = 0; i < owner_.size(); ++i) owner_[i] = i;
    for (const Node& node : graph.nodes) {
      const auto* first = node.args.empty() ? nullptr : std::get_if<ValueId>(&node.args.front());
      if (first == nullptr || first->is_none() || !has(node.op->traits, Trait::view)) continue;
      for (const ValueId v : node.results) owner_[v.index] = owner_[first->index];
    }
    shared_.assign(graph.value_count(), false);
    for (const graph::Input& input : graph.inputs) {
      if (!input.value.is_none()) shared_[input.value.index] = true;
    }
    for (const auto& constant : graph.constants) shared_[constant.first.index] = true;
    for (const graph::Output& output : graph.outputs) {
      if (const auto* v = std::get_if<ValueId>(&output.value)) shared_[owner_[v->index]] = true;
    }
  }

  std::optional<Graph> run() {
    std::vector<bool> mark(graph_.nodes.size(), false);
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (is_update(i) && base_dies(i, i)) mark[i] = true;
    }
    for (const Match& copy : find_all(graph_, "copy_(x, y, ...)")) mark_chain(copy, mark);
    Graph out = graph_;
    bool changed = false;
    for (std::size_t i = 0; i < mark.size(); ++i) {
      changed = changed || mark[i] != out.nodes[i].in_place;
      out.nodes[i].in_place = mark[i];
    }
    if (!changed) return std::nullopt;
    return out;
  }

 private:
  bool is_update(std::size_t i) const { return has(graph_.nodes[i].op->traits, Trait::update); }
  static ValueId base(const Node& node) { return std::get<ValueId>(node.args.front()); }

  // Nodes after `from`, but for `except`, that read the memory of `owner`; node `from` itself
  // counts for operands other than its first.
  bool is_read_from(std::uint32_t owner, std::size_t from, std::size_t except) const {
    for (std::size_t i = from; i < graph_.nodes.size(); ++i) {
      if (i == except && i != from) continue;
      std::size_t reads = 0;
      graph::for_each_operand(graph_.nodes[i],
                              [&](ValueId v) { reads += owner_[v.index] == owner ? 1U : 0U; });
      if (reads > (i == from ? 1U : 0U)) return true;
    }
    return false;
  }

  // The base is a node's own result, whole, that nothing reads from this node on.
  bool base_dies(std::size_t i, std::size_t except) const {
    const ValueId v = base(graph_.nodes[i]);
    return owner_[v.index] == v.index && producer_[v.index] >= 0 && !shared_[v.index] &&
           !is_read_from(v.index, i, except);
  }

  // copy_(x, y): y is made from x by updates only, and nothing but that chain reads x after its
  // first link.
  void mark_chain(const Match& copy, std::vector<bool>& mark) const {
    const ValueId x = copy.value("x");
    const ValueId y = copy.value("y");
    const auto end = static_cast<std::size_t>(producer_[copy.root().index]);
    ValueId v = y;
    while (v != x) {
      const std::int32_t at = producer_[v.index];
      if (at < 0 || !is_update(static_cast<std::size_t>(at))) return;
      const auto i = static_cast<std::size_t>(at);
      const ValueId from = base(graph_.nodes[i]);
      if (from == x) {
        // No other input may be a view of x for the caller either: inputs do not overlap.
        if (!is_read_from(owner_[x.index], i, end)) mark[i] = true;
        return;
      }
      if (!mark[i]) return;
      v = from;
    }
  }

  const Graph& graph_;
  std::vector<std::uint32_t> owner_;  // the value whose memory this is a view of
  std::vector<std::int32_t> producer_;
  std::vector<bool> shared_;  // inputs, literals, and what outputs are views of
};

}  // namespace

std::optional<Graph> reinplace(const Graph& graph, PassContext&) { return Marker(graph).run(); }

}  // namespace inkle::passes
