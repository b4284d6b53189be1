#include "ops/sharing.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace inkle::ops {
namespace {

using graph::Graph;
using graph::has;
using graph::Node;
using graph::Output;
using graph::Sharing;
using graph::Trait;
using graph::Type;
using graph::ValueId;

// What a value is a view of, and the nodes between.
struct Chain {
  ValueId base;
  std::vector<const Node*> nodes;  // in order
};

class Sharer {
 public:
  explicit Sharer(Graph& graph) : graph_(graph), producer_(graph::producers(graph)) {
    for (const graph::Input& input : graph.inputs) {
      if (!input.value.is_none()) contents_.emplace(input.value, input.value);
    }
    for (const Node& node : graph.nodes) {
      const auto* of = node.args.empty() ? nullptr : std::get_if<ValueId>(&node.args.front());
      if (!has(node.op->traits, Trait::effect) || of == nullptr || node.results.empty()) continue;
      // After a write to a part, no single value is the argument's contents.
      const ValueId written = chain_of(*of).base;
      const bool is_whole = written == *of;
      for (auto& [argument, value] : contents_) {
        if (value == written) value = is_whole ? node.results.front() : ValueId{};
      }
    }
  }

  void run() {
    std::map<ValueId, std::size_t> users;  // outputs by what they are views of
    std::vector<Chain> chains;
    for (const Output& output : graph_.outputs) {
      const auto* v = std::get_if<ValueId>(&output.value);
      chains.push_back(v == nullptr || v->is_none() ? Chain{} : chain_of(*v));
      if (!chains.back().base.is_none()) ++users[chains.back().base];
    }
    std::map<ValueId, std::uint32_t> numbers;
    for (std::size_t i = 0; i < chains.size(); ++i) {
      Output& output = graph_.outputs[i];
      const ValueId base = chains[i].base;
      if (base.is_none()) continue;
      const ValueId argument = argument_of(base);
      const bool is_made = producer_[base.index] >= 0;
      if (argument.is_none() && (!is_made || users[base] < 2)) continue;
      const auto view = place(chains[i], std::get<ValueId>(output.value), argument);
      if (!view) continue;
      output.view = graph_.type(std::get<ValueId>(output.value));
      output.view.strides = view->strides;
      output.offset = view->offset;
      output.sharing = argument.is_none() ? Sharing::storage : Sharing::argument;
      output.argument = argument;
      if (argument.is_none()) {
        const auto number = static_cast<std::uint32_t>(numbers.size());
        output.storage = numbers.emplace(base, number).first->second;
      }
      output.value = base;
    }
  }

 private:
  Chain chain_of(ValueId v) const {
    Chain chain{.base = v};
    while (producer_[chain.base.index] >= 0) {
      const Node& node = graph_.nodes[static_cast<std::size_t>(producer_[chain.base.index])];
      const auto* of = node.args.empty() ? nullptr : std::get_if<ValueId>(&node.args.front());
      if (!has(node.op->traits, Trait::view) || of == nullptr || of->is_none()) break;
      chain.nodes.push_back(&node);
      chain.base = *of;
    }
    std::ranges::reverse(chain.nodes);
    return chain;
  }

  // The input whose contents at the end of the program the value is.
  ValueId argument_of(ValueId value) const {
    const auto found =
        std::ranges::find(contents_, value, [](const auto& entry) { return entry.second; });
    return found == contents_.end() ? ValueId{} : found->first;
  }

  std::optional<StridedView> place(const Chain& chain, ValueId v, ValueId argument) {
    Type& base = graph_.type(chain.base);
    if (argument.is_none() && !base.strides) {
      base.strides = graph::contiguous_strides(graph_.context(), base.sizes);
    }
    const Sizes strides = graph_.type(argument.is_none() ? chain.base : argument).strides.value();
    loop::Program program;
    program.context = graph_.shared_context();
    LoweringState state{.graph = &graph_, .program = &program, .values = {}, .remaining = {}};
    state.values.resize(graph_.value_count());
    const loop::BufferId buffer = program.add_buffer(
        {.dtype = base.dtype, .device = base.device, .sizes = base.sizes, .strides = strides});
    state.values[chain.base.index] =
        Tensor{.dtype = base.dtype, .device = base.device, .sizes = base.sizes, .buffer = buffer};
    for (const Node* node : chain.nodes) {
      if (node->op->lower == nullptr) return std::nullopt;
      Lowering lowering(state, *node);
      node->op->lower(lowering);
    }
    const std::optional<Tensor>& viewed = state.values[v.index];
    if (!viewed || viewed->buffer != buffer || viewed->dtype != base.dtype) return std::nullopt;
    auto view = strided_view(*viewed, strides, graph_.context());
    if (!view) return std::nullopt;
    // Other strides than the view's own are wanted as a copy.
    Type made = graph_.type(v);
    made.strides = view->strides;
    if (!graph::type_difference(made, graph_.type(v)).empty()) return std::nullopt;
    return view;
  }

  Graph& graph_;
  std::vector<std::int32_t> producer_;
  std::map<ValueId, ValueId> contents_;  // by input: its contents at the end; none: in parts
};

}  // namespace

std::optional<StridedView> strided_view(const Tensor& t, const Sizes& buffer_strides,
                                        sym::Context& context) {
  std::vector<Expr> variables;
  std::vector<std::pair<Expr, Expr>> zeros;
  for (const Expr size : t.sizes) {
    variables.push_back(context.index(size));
    zeros.emplace_back(variables.back(), context.constant(0));
  }
  const std::vector<Expr> mapped = t.buffer_indices(variables);
  Expr offset = context.constant(0);
  for (std::size_t d = 0; d < mapped.size(); ++d) offset = offset + mapped[d] * buffer_strides[d];
  StridedView view;
  for (const Expr variable : variables) {
    const auto stride = sym::stride(offset, variable);
    if (!stride) return std::nullopt;
    for (const Expr other : variables) {
      if (sym::contains(*stride, other)) return std::nullopt;
    }
    view.strides.push_back(*stride);
  }
  view.offset = sym::substitute(offset, zeros);
  return view;
}

void share_views(Graph& graph) {
  Sharer(graph).run();
  graph::settle_views(graph);  // of values whose strides are fixed now
}

}  // namespace inkle::ops
