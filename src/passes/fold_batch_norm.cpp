#include "passes/fold_batch_norm.h"

#include <algorithm>

namespace inkle::passes {
namespace {

using abi::DType;
using graph::Expr;
using graph::Graph;
using graph::Type;

bool all_literal(Match& m, std::initializer_list<std::string_view> names) {
  return std::ranges::all_of(
      names, [&](std::string_view name) { return m.is_tensor(name) && m.is_literal(name); });
}

// Binds "shape": the sizes that let a value per output channel broadcast over the weights.
bool foldable(Match& m) {
  if (!all_literal(m, {"w", "gamma", "beta", "mean", "var"})) return false;
  const Type& w = m.type("w");
  if (w.dtype != DType::f32 && w.dtype != DType::f64) return false;
  for (const std::string_view name : {"gamma", "beta", "mean", "var"}) {
    if (m.type(name).dtype != w.dtype) return false;
  }
  std::vector<Expr> shape(w.rank(), m.graph().context().constant(1));
  shape[0] = w.sizes[0];
  m.bind("shape", std::move(shape));
  return true;
}

bool foldable_with_bias(Match& m) { return all_literal(m, {"b"}) && foldable(m); }

constexpr Definition kDefinitions[] = {
    {"factor", "mul(gamma, rsqrt(add(var, eps)))"},
    {"weight", "mul(w, reshape($factor, shape))"},
};

constexpr Rule kRules[] = {
    {.name = "batch norm of convolution",
     .match = "_native_batch_norm_legit_no_training(convolution(x, w, none, stride, padding, "
              "dilation, false, out, groups), gamma, beta, mean, var, _, eps)",
     .give = "[convolution(x, $weight, sub(beta, mul(mean, $factor)), stride, padding, dilation, "
             "false, out, groups), none, none]",
     .condition = foldable,
     .consumes = true},
    {.name = "batch norm of convolution with bias",
     .match = "_native_batch_norm_legit_no_training(convolution(x, w, b, stride, padding, "
              "dilation, false, out, groups), gamma, beta, mean, var, _, eps)",
     .give = "[convolution(x, $weight, add(beta, mul(sub(b, mean), $factor)), stride, padding, "
             "dilation, false, out, groups), none, none]",
     .condition = foldable_with_bias,
     .consumes = true},
};

}  // namespace

RuleSet batch_norm_rules(const graph::OpTable& table) { return {kRules, kDefinitions, table}; }

std::optional<Graph> fold_batch_norm(const Graph& graph, PassContext& context) {
  if (!context.options.freeze) return std::nullopt;
  return apply_rules(graph, batch_norm_rules(graph.table()));
}

}  // namespace inkle::passes
