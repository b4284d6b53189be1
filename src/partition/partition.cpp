#include "partition/partition.h"

#include <algorithm>
#include <iterator>
#include <unordered_set>

#include "base/error.h"
#include "base/log.h"
#include "graph/builder.h"
#include "partition/problem.h"

namespace inkle::partition {
namespace {

using graph::Argument;
using graph::Expr;
using graph::Graph;
using graph::Input;
using graph::Node;
using graph::Output;
using graph::Sharing;
using graph::ValueId;

// A forward or backward graph while it is copied out of the joint graph.
class Half {
 public:
  explicit Half(const Graph& joint)
      : joint_(joint), made_(joint.shared_context(), joint.table()), map_(joint.value_count()) {
    made_.name = joint.name;
  }

  ValueId add_input(const Input& input) {
    Input copy = input;
    if (!input.value.is_none()) copy.value = carry(input.value);
    made_.inputs.push_back(copy);
    return copy.value;
  }

  ValueId add_kept(ValueId v, std::string name) {
    const ValueId carried = carry(v);
    made_.inputs.push_back({.name = std::move(name), .value = carried});
    return carried;
  }

  void add_node(const Node& original) {
    Node node = original;
    graph::replace_operands(node, [&](ValueId v) { return of(v); });
    node.keep = graph::Keep::free;
    for (ValueId& v : node.results) {
      // A value that is already an input stays that; this result is unused.
      const ValueId made = made_.add_value(joint_.type(v));
      if (map_[v.index].is_none()) map_[v.index] = made;
      v = made;
    }
    made_.nodes.push_back(std::move(node));
  }

  void add_output(const Output& output) {
    Output copy = output;
    if (auto* v = std::get_if<ValueId>(&copy.value); v != nullptr && !v->is_none()) {
      *v = of(*v);
      if (copy.sharing == Sharing::storage && is_input(*v)) {  // kept by the forward
        copy.sharing = Sharing::argument;
        copy.argument = *v;
      } else if (copy.sharing == Sharing::argument) {
        copy.argument = of(copy.argument);
      }
    }
    made_.outputs.push_back(copy);
  }

  // Returns the contents that `v` has now, in memory of their own.
  ValueId add_copy(ValueId v) {
    const ValueId copy = graph::Builder(made_).node("clone", {of(v)});
    made_.outputs.push_back({.value = copy, .sharing = Sharing::own});
    return copy;
  }

  [[nodiscard]] bool has(ValueId v) const { return !map_[v.index].is_none(); }

  // The value in this graph; literals are copied at their first use.
  ValueId of(ValueId v) {
    if (!map_[v.index].is_none()) return map_[v.index];
    const auto literal =
        std::ranges::find(joint_.constants, v, [](const auto& c) { return c.first; });
    INKLE_CHECK(literal != joint_.constants.end(),
                "forward or backward reads value {} of the other", v.index);
    made_.constants.emplace_back(carry(v), literal->second);
    return map_[v.index];
  }

  [[nodiscard]] Graph& graph() { return made_; }

 private:
  [[nodiscard]] bool is_input(ValueId v) const {
    return std::ranges::find(made_.inputs, v, &Input::value) != made_.inputs.end();
  }
  ValueId carry(ValueId v) { return map_[v.index] = made_.add_value(joint_.type(v)); }

  const Graph& joint_;
  Graph made_;
  std::vector<ValueId> map_;
};

class Splitter {
 public:
  Splitter(const Problem& problem, const Cut& cut)
      : problem_(problem),
        joint_(problem.joint),
        info_(problem.info),
        cut_(cut),
        producer_(problem.producer),
        forward_(problem.joint),
        backward_(problem.joint) {}

  TrainingGraphs run() {
    build_forward();
    TrainingGraphs graphs{.forward = std::move(forward_.graph()),
                          .backward = Graph(joint_.shared_context(), joint_.table()),
                          .kept = std::move(kept_),
                          .symbols = {},
                          .bytes = cut_.bytes,
                          .forward_outputs = info_.forward_outputs};
    build_backward(graphs.forward, graphs.kept);
    graphs.symbols = add_symbols(graphs.forward);
    graph::settle_views(backward_.graph());
    graphs.backward = std::move(backward_.graph());
    return graphs;
  }

 private:
  void build_forward() {
    for (std::size_t i = 0; i < joint_.inputs.size(); ++i) {
      if (!info_.is_tangent[i]) forward_.add_input(joint_.inputs[i]);
    }
    for (std::size_t i = 0; i < joint_.nodes.size(); ++i) {
      if (cut_.in_forward[i]) forward_.add_node(joint_.nodes[i]);
    }
    for (std::size_t i = 0; i < info_.forward_outputs; ++i) forward_.add_output(joint_.outputs[i]);
    const std::vector<ValueId> owners = graph::memory_owners(joint_);
    for (const ValueId v : cut_.kept) {
      const ValueId owner = owners[v.index];
      const bool is_merged = producer_[owner.index] >= 0 && problem_.roles.is_last_resort(v);
      if (is_written(owner) || is_merged) {
        kept_.push_back({.in_forward = forward_.add_copy(v)});
        continue;
      }
      // In the memory of an input or output where it lies there.
      forward_.add_output({.value = v, .sharing = graph::Sharing::free});
      Kept kept{.in_forward = forward_.of(v)};
      if (const std::int32_t i = producer_[v.index]; i >= 0) {
        const Node& node = joint_.nodes[static_cast<std::size_t>(i)];
        kept.source = node.source;
        kept.result =
            static_cast<std::size_t>(std::ranges::find(node.results, v) - node.results.begin());
      } else {
        const auto input = std::ranges::find(joint_.inputs, v, &Input::value);
        kept.input = static_cast<std::size_t>(input - joint_.inputs.begin());
      }
      kept_.push_back(std::move(kept));
    }
    graph::settle_views(forward_.graph());
  }

  // The host writes to it between the graphs.
  [[nodiscard]] bool is_written(ValueId owner) const {
    const auto input = std::ranges::find(joint_.inputs, owner, &Input::value);
    return input != joint_.inputs.end() &&
           info_.is_written[static_cast<std::size_t>(input - joint_.inputs.begin())];
  }

  void build_backward(const Graph& forward, std::vector<Kept>& kept) {
    for (std::size_t i = 0; i < kept.size(); ++i) {
      const bool is_input = kept[i].input != Kept::kComputed;
      std::string name = is_input ? joint_.inputs[kept[i].input].name : "kept_" + std::to_string(i);
      kept[i].in_backward = backward_.add_kept(cut_.kept[i], std::move(name));
      // A copy may have any strides.
      graph::Type& type = backward_.graph().type(kept[i].in_backward);
      if (!forward.type(kept[i].in_forward).strides) type.strides.reset();
    }
    for (std::size_t i = 0; i < joint_.inputs.size(); ++i) {
      if (info_.is_tangent[i]) backward_.add_input(joint_.inputs[i]);
    }
    emitted_.resize(joint_.nodes.size());
    for (std::size_t i = 0; i < joint_.nodes.size(); ++i) {
      // Recomputation is scheduled as late as its users allow, so that its results are live only
      // briefly.
      if (cut_.in_backward[i] && !cut_.in_forward[i]) emit(i);
    }
    for (std::size_t i = info_.forward_outputs; i < joint_.outputs.size(); ++i) {
      const auto* v = std::get_if<ValueId>(&joint_.outputs[i].value);
      if (v != nullptr && !v->is_none()) emit_producer(*v);
      backward_.add_output(joint_.outputs[i]);
    }
  }

  void emit_producer(ValueId v) {
    if (!backward_.has(v) && producer_[v.index] >= 0) {
      emit(static_cast<std::size_t>(producer_[v.index]));
    }
  }

  // The node after its operands; iterative, as chains may be long.
  void emit(std::size_t root) {
    std::vector<std::pair<std::size_t, bool>> stack{{root, false}};
    while (!stack.empty()) {
      const auto [i, is_ready] = stack.back();
      stack.pop_back();
      if (emitted_[i]) continue;
      if (is_ready) {
        emitted_[i] = true;
        backward_.add_node(joint_.nodes[i]);
        continue;
      }
      stack.emplace_back(i, true);
      graph::for_each_operand(joint_.nodes[i], [&](ValueId v) {
        if (!backward_.has(v) && producer_[v.index] >= 0) {
          stack.emplace_back(static_cast<std::size_t>(producer_[v.index]), false);
        }
      });
    }
  }

  // Size symbols that the backward or a guard uses: its inputs, and outputs of the forward.
  std::vector<std::size_t> add_symbols(Graph& forward) {
    std::unordered_set<std::uint32_t> seen;
    std::vector<Expr> found;
    const auto add = [&](Expr e) {
      for (const Expr s : sym::symbols(e)) {
        if (seen.insert(s.id()).second) found.push_back(s);
      }
    };
    const Graph& g = backward_.graph();
    for (std::uint32_t v = 0; v < g.value_count(); ++v) {
      for (const Expr e : g.type({v}).sizes) add(e);
      if (g.type({v}).strides) std::ranges::for_each(*g.type({v}).strides, add);
    }
    for (const Node& node : g.nodes) {
      for (const Argument& a : node.args) {
        if (const auto* e = std::get_if<Expr>(&a)) add(*e);
        if (const auto* l = std::get_if<std::vector<Expr>>(&a)) std::ranges::for_each(*l, add);
      }
    }
    for (const Output& output : g.outputs) {
      if (const auto* e = std::get_if<Expr>(&output.value)) add(*e);
      if (!output.is_view()) continue;
      std::ranges::for_each(output.view.sizes, add);
      std::ranges::for_each(*output.view.strides, add);
      add(output.offset);
    }
    std::vector<Expr> guarded;
    for (const auto& guard : joint_.context().guards()) {
      for (const Expr side : {guard.left, guard.right}) {
        std::ranges::copy(sym::symbols(side), std::back_inserter(guarded));
      }
    }
    std::vector<std::size_t> positions;
    for (std::size_t i = 0; i < joint_.inputs.size(); ++i) {
      const Input& input = joint_.inputs[i];
      if (!input.value.is_none() || info_.is_tangent[i]) continue;
      const bool is_guarded = std::ranges::find(guarded, input.symbol) != guarded.end();
      if (std::erase(found, input.symbol) > 0 || is_guarded) positions.push_back(i);
    }
    if (!found.empty()) {
      unsupported("the size {} is not an input of the forward", sym::to_string(found.front()));
    }
    std::vector<Input> inputs;
    for (const std::size_t i : positions) {
      inputs.push_back(joint_.inputs[i]);
      forward.outputs.push_back({.value = joint_.inputs[i].symbol});
    }
    auto& own = backward_.graph().inputs;
    own.insert(own.begin(), inputs.begin(), inputs.end());
    return positions;
  }

  const Problem& problem_;
  const Graph& joint_;
  const Joint& info_;
  const Cut& cut_;
  const std::vector<std::int32_t>& producer_;
  Half forward_, backward_;
  std::vector<Kept> kept_;
  std::vector<bool> emitted_;
};

}  // namespace

bool TrainingGraphs::set_strides(std::size_t i, const graph::Sizes& strides) {
  graph::Type& type = forward.type(kept[i].in_forward);
  if (type.strides) return false;
  type.strides = strides;
  backward.type(kept[i].in_backward).strides = strides;
  return true;
}

void TrainingGraphs::settle_strides() {
  for (std::size_t i = 0; i < kept.size(); ++i) {
    const graph::Type& type = forward.type(kept[i].in_forward);
    if (type.strides) {
      backward.type(kept[i].in_backward).strides = type.strides;
    } else {
      set_strides(i, graph::contiguous_strides(forward.context(), type.sizes));
    }
  }
  graph::settle_views(forward);
  graph::settle_views(backward);
}

TrainingGraphs partition(const Graph& joint, const Joint& info, const Machine& machine,
                         Weigh weigh) {
  std::int64_t least = 0;
  const Problem problem(joint, info, machine);
  for (const Weigh how : {weigh, Weigh::bytes, Weigh::nothing}) {
    const Cut cut = problem.cut(choose(problem, how));
    log(LogChannel::partition, "{}: {} values kept, {} bytes of {}", joint.name, cut.kept.size(),
        cut.bytes, problem.most_bytes);
    if (cut.bytes <= problem.most_bytes) return Splitter(problem, cut).run();
    least = cut.bytes;
  }
  unsupported("{} bytes would be saved, the limit is {}", least, problem.most_bytes);
}

}  // namespace inkle::partition
