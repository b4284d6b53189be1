#include "passes/fully_masked_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "graph/builder.h"

namespace inkle::passes {
namespace {

using abi::DType;
using graph::Argument;
using graph::Builder;
using graph::Graph;
using graph::Node;
using graph::Rewriter;
using graph::ValueId;

// (query, key, value, attn_mask?, dropout_p, is_causal, scale?, enable_gqa, safe)
constexpr std::size_t kMask = 3, kSafe = 8;

bool may_be_fully_masked(const Node& node) {
  return node.op->name == "sdpa" && std::holds_alternative<ValueId>(node.args[kMask]) &&
         !std::get<bool>(node.args[kSafe]);
}

double largest_of(DType dtype) {
  if (dtype == DType::f16) return 65504;
  if (dtype == DType::bf16) return std::ldexp(255.0, 120);
  return std::numeric_limits<float>::max();
}

// Whether no row of the mask is entirely minus infinity: it selects one of two finite numbers, or
// this pass has seen it.
bool sees_always(const Graph& graph, const std::vector<std::int32_t>& producers, ValueId mask) {
  double largest = std::numeric_limits<float>::max();
  for (std::int32_t n = producers[mask.index]; n >= 0; n = producers[mask.index]) {
    const Node& node = graph.nodes[static_cast<std::size_t>(n)];
    largest = std::min(largest, largest_of(graph.type(mask).dtype));
    if (node.op->name == "where") {
      const auto* otherwise = std::get_if<double>(&node.args[2]);
      if (otherwise != nullptr && std::isnan(*otherwise)) return true;
      return std::ranges::all_of(std::span(node.args).subspan(1), [&](const Argument& a) {
        const auto* number = std::get_if<double>(&a);
        return number != nullptr && std::abs(*number) <= largest;
      });
    }
    const auto* from = node.args.empty() ? nullptr : std::get_if<ValueId>(&node.args[0]);
    const bool is_same = has(node.op->traits, graph::Trait::view) || node.op->name == "clone" ||
                         node.op->name == "_to_copy";
    if (!is_same || from == nullptr) return false;
    mask = *from;
  }
  return false;
}

}  // namespace

std::optional<Graph> fully_masked_rows(const Graph& graph, PassContext& context) {
  if (!context.options.safe_attention) return std::nullopt;
  if (!std::ranges::any_of(graph.nodes, may_be_fully_masked)) return std::nullopt;
  const std::vector<std::int32_t> producers = graph::producers(graph);
  bool has_changed = false;
  Rewriter rewriter(graph, graph.name);
  Graph result = std::move(rewriter).run(
      [&](Rewriter& r, const Node& mapped, const Node& old) -> std::optional<std::vector<ValueId>> {
        if (!may_be_fully_masked(mapped)) return std::nullopt;
        if (sees_always(graph, producers, std::get<ValueId>(old.args[kMask]))) return std::nullopt;
        Builder& b = r.builder();
        const ValueId mask = std::get<ValueId>(mapped.args[kMask]);
        const graph::Type& type = b.type(mask);
        const bool has_columns = type.rank() > 0 && !type.sizes.back().is_constant(0);
        if (type.dtype == DType::boolean || !has_columns) return std::nullopt;
        const ValueId top = b.node("amax", {mask, graph::Sizes{b.integer(-1)}, true});
        const ValueId sees = b.node("gt", {top, -std::numeric_limits<double>::infinity()});
        std::vector<Argument> args = mapped.args;
        args[kMask] = b.node("where", {sees, mask, std::nan("")});
        has_changed = true;
        return std::vector<ValueId>{b.node(mapped.op->name, std::move(args))};
      });
  if (!has_changed) return std::nullopt;
  return result;
}

}  // namespace inkle::passes
