#include "passes/fold_masks.h"

#include "passes/conditions.h"
#include "passes/element.h"

namespace inkle::passes {
namespace {

using abi::DType;
using graph::Expr;
using graph::Graph;
using graph::Type;
using graph::ValueId;

// Below this an additive mask leaves no weight beside any finite score that is not itself near the
// end of the range: exp(-1e30) is 0 in every type, and models write the lowest float or -inf.
constexpr double kHidden = -1e30;

bool shows(double element, DType dtype) { return element == (dtype == DType::boolean ? 1 : 0); }
bool hides(double element, DType dtype) {
  return dtype == DType::boolean ? element == 0 : element <= kHidden;
}

struct MaskIndices {
  std::vector<Expr> outer;  // one for each dimension but the last two
  Expr q_size, k_size;
};

// Any index: 0 <= it < size.
Expr free_index(sym::Context& context, Expr size) {
  return size.is_constant(1) ? context.constant(0) : context.index(size);
}

MaskIndices indices_of(sym::Context& context, const Type& mask) {
  MaskIndices out;
  for (std::size_t d = 0; d + 2 < mask.rank(); ++d) {
    out.outer.push_back(free_index(context, mask.sizes[d]));
  }
  out.q_size = mask.sizes[mask.rank() - 2];
  out.k_size = mask.sizes[mask.rank() - 1];
  return out;
}

std::optional<double> element(const Elements& elements, const MaskIndices& at, Expr q, Expr k) {
  std::vector<Expr> indices = at.outer;
  indices.push_back(q);
  indices.push_back(k);
  return elements.constant_at(indices);
}

std::optional<Elements> mask_of(Match& m) {
  if (!m.is_tensor("mask")) return std::nullopt;
  const ValueId mask = m.value("mask");
  if (m.graph().type(mask).rank() < 2) return std::nullopt;
  return Elements::of(m.graph(), mask);
}

bool neutral(Match& m) {
  const auto elements = mask_of(m);
  if (!elements) return false;
  sym::Context& context = m.graph().context();
  const Type& type = m.type("mask");
  const MaskIndices at = indices_of(context, type);
  const auto e =
      element(*elements, at, free_index(context, at.q_size), free_index(context, at.k_size));
  return e && shows(*e, type.dtype);
}

// For k <= q: q = k + d with d >= 0. For k > q: k = q + 1 + d. Where the mask is not square only
// part of these exist; what holds for all of them holds for those.
bool causal(Match& m) {
  const auto elements = mask_of(m);
  if (!elements) return false;
  sym::Context& context = m.graph().context();
  const Type& type = m.type("mask");
  const MaskIndices at = indices_of(context, type);
  // A mask that is broadcast along either index is not causal.
  if (at.q_size.is_constant(1) || at.k_size.is_constant(1)) return false;
  const Expr d = context.index(sym::max(at.q_size, at.k_size));
  const Expr k = context.index(at.k_size);
  const auto seen = element(*elements, at, k + d, k);
  if (!seen || !shows(*seen, type.dtype)) return false;
  const Expr q = context.index(at.q_size);
  const auto hidden = element(*elements, at, q, q + d + 1);
  return hidden && hides(*hidden, type.dtype);
}

constexpr Rule kRules[] = {
    {.name = "neutral mask",
     .match = "sdpa(q, k, v, mask, p, causal, s, g, safe)",
     .give = "sdpa(q, k, v, none, p, causal, s, g, safe)",
     .condition = neutral},
    {.name = "causal mask",
     .match = "sdpa(q, k, v, mask, p, false, s, g, safe)",
     .give = "sdpa(q, k, v, none, p, true, s, g, safe)",
     .condition = causal},
    {.name = "neutral mask, with log-sum-exp",
     .match = "_scaled_dot_product_flash_attention_for_cpu(q, k, v, p, causal, mask, s)",
     .give = "_scaled_dot_product_flash_attention_for_cpu(q, k, v, p, causal, none, s)",
     .condition = neutral},
    {.name = "causal mask, with log-sum-exp",
     .match = "_scaled_dot_product_flash_attention_for_cpu(q, k, v, p, false, mask, s)",
     .give = "_scaled_dot_product_flash_attention_for_cpu(q, k, v, p, true, none, s)",
     .condition = causal},
    {.name = "neutral mask, in training",
     .match = "attend(q, k, v, mask, seed, n, p, causal, s, safe, h)",
     .give = "attend(q, k, v, none, seed, n, p, causal, s, safe, h)",
     .condition = neutral},
    {.name = "causal mask, in training",
     .match = "attend(q, k, v, mask, seed, n, p, false, s, safe, h)",
     .give = "attend(q, k, v, none, seed, n, p, true, s, safe, h)",
     .condition = causal},
    {.name = "neutral mask, gradient",
     .match = "attend_backward(g, q, k, v, out, m, mask, seed, n, p, causal, s, safe, h)",
     .give = "attend_backward(g, q, k, v, out, m, none, seed, n, p, causal, s, safe, h)",
     .condition = neutral},
    {.name = "causal mask, gradient",
     .match = "attend_backward(g, q, k, v, out, m, mask, seed, n, p, false, s, safe, h)",
     .give = "attend_backward(g, q, k, v, out, m, none, seed, n, p, true, s, safe, h)",
     .condition = causal},
};

}  // namespace

RuleSet mask_rules(const graph::OpTable& table) { return {kRules, {}, table}; }

std::optional<Graph> fold_masks(const Graph& graph, PassContext&) {
  return apply_rules(graph, mask_rules(graph.table()));
}

}  // namespace inkle::passes
