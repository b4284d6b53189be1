#include "passes/split_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "graph/builder.h"

namespace inkle::passes {
namespace {

using abi::DType;
using graph::Builder;
using graph::Expr;
using graph::Graph;
using graph::Node;
using graph::Rewriter;
using graph::Type;
using graph::ValueId;

// (query, key, value, attn_mask?, dropout_p, is_causal, scale?, enable_gqa, safe)
constexpr std::string_view kName = "sdpa";
constexpr std::size_t kMask = 3, kDropout = 4, kCausal = 5, kScale = 6, kSafe = 8;

// Heads of a key or value, each as often as there are heads of the query that read it.
ValueId repeated(Builder& b, ValueId v, Expr heads) {
  const Type type = b.type(v);
  if (type.rank() != 4 || type.sizes[1] == heads) return v;
  const Expr each = sym::floordiv(heads, type.sizes[1]);
  const ValueId apart = b.node("unsqueeze", {v, b.integer(2)});
  std::vector<Expr> wide = {type.sizes[0], type.sizes[1], each, type.sizes[2], type.sizes[3]};
  const ValueId expanded = b.node("expand", {apart, wide});
  std::vector<Expr> sizes = {type.sizes[0], heads, type.sizes[2], type.sizes[3]};
  return b.node("reshape", {expanded, sizes});
}

std::optional<ValueId> split(Builder& b, const Node& node) {
  const auto operand = [&](std::size_t i) { return std::get<ValueId>(node.args[i]); };
  const Type q = b.type(operand(0));
  const Expr width = q.sizes.back();
  const auto* scale_given = std::get_if<double>(&node.args[kScale]);
  const auto* dropout = std::get_if<double>(&node.args[kDropout]);
  if ((scale_given == nullptr && !width.is_constant()) || (dropout != nullptr && *dropout != 0)) {
    return std::nullopt;
  }
  const double scale =
      scale_given != nullptr ? *scale_given : 1 / std::sqrt(static_cast<double>(*width.constant()));
  const Expr heads = q.rank() == 4 ? q.sizes[1] : Expr();
  const ValueId k = q.rank() == 4 ? repeated(b, operand(1), heads) : operand(1);
  const ValueId v = q.rank() == 4 ? repeated(b, operand(2), heads) : operand(2);
  const ValueId transposed = b.node("transpose", {k, b.integer(-2), b.integer(-1)});
  ValueId scores = b.node("mul", {b.node("matmul", {operand(0), transposed}), scale});
  const double none = -std::numeric_limits<double>::infinity();
  if (const auto* mask = std::get_if<ValueId>(&node.args[kMask])) {
    scores = b.type(*mask).dtype == DType::boolean ? b.node("where", {*mask, scores, none})
                                                   : b.node("add", {scores, *mask});
  }
  if (std::get<bool>(node.args[kCausal])) {
    const Type key = b.type(k);
    const auto numbers = [&](Expr count) {
      return b.node("arange", {count, DType::i64, graph::None{}, q.device});
    };
    const ValueId row = numbers(q.sizes[q.rank() - 2]);
    const ValueId column = numbers(key.sizes[key.rank() - 2]);
    const ValueId seen = b.node("le", {column, b.node("unsqueeze", {row, b.integer(1)})});
    scores = b.node("where", {seen, scores, none});
  }
  if (b.type(scores).dtype != q.dtype) scores = b.node("_to_copy", {scores, q.dtype});
  const char* softmax = std::get<bool>(node.args[kSafe]) ? "_safe_softmax" : "softmax";
  return b.node("matmul", {b.node(softmax, {scores, b.integer(-1)}), v});
}

}  // namespace

std::optional<Graph> split_attention(const Graph& graph, PassContext& context) {
  if (!context.options.split_attention) return std::nullopt;
  const auto is_attention = [](const Node& node) { return node.op->name == kName; };
  if (!std::ranges::any_of(graph.nodes, is_attention)) return std::nullopt;
  Rewriter rewriter(graph, graph.name);
  return std::move(rewriter).run(
      [&](Rewriter& r, const Node& mapped, const Node&) -> std::optional<std::vector<ValueId>> {
        if (!is_attention(mapped)) return std::nullopt;
        const auto result = split(r.builder(), mapped);
        if (!result) return std::nullopt;
        return std::vector<ValueId>{*result};
      });
}

}  // namespace inkle::passes
