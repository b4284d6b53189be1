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

// Whether an element says that a score stays as it is, or vanishes; `keeps`: what true means.
bool shows(double element, DType dtype, bool keeps) {
  return dtype == DType::boolean ? (element != 0) == keeps : element == 0;
}
bool hides(double element, DType dtype, bool keeps) {
  return dtype == DType::boolean ? (element != 0) != keeps : element <= kHidden;
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

bool is_neutral(const Elements& elements, const MaskIndices& at, const Type& type, bool keeps) {
  sym::Context& context = at.q_size.context();
  const auto e =
      element(elements, at, free_index(context, at.q_size), free_index(context, at.k_size));
  return e && shows(*e, type.dtype, keeps);
}

// For k <= q: q = k + d with d >= 0. For k > q: k = q + 1 + d. Where the mask is not square only
// part of these exist; what holds for all of them holds for those.
bool is_causal(const Elements& elements, const MaskIndices& at, const Type& type, bool keeps) {
  sym::Context& context = at.q_size.context();
  // A mask that is broadcast along either index is not causal.
  if (at.q_size.is_constant(1) || at.k_size.is_constant(1)) return false;
  const Expr d = context.index(sym::max(at.q_size, at.k_size));
  const Expr k = context.index(at.k_size);
  const auto seen = element(elements, at, k + d, k);
  if (!seen || !shows(*seen, type.dtype, keeps)) return false;
  const Expr q = context.index(at.q_size);
  const auto hidden = element(elements, at, q, q + d + 1);
  return hidden && hides(*hidden, type.dtype, keeps);
}

MaskKind kind_of(Match& m) {
  return m.is_tensor("mask") ? mask_kind(m.graph(), m.value("mask"), true) : MaskKind::other;
}
bool neutral(Match& m) { return kind_of(m) == MaskKind::neutral; }
bool causal(Match& m) { return kind_of(m) == MaskKind::causal; }
// Of an op whose flags put the number h in place of scores. Under a causal mask every row sees its
// first column, so that none is left with such numbers alone.
bool causal_and_hidden(Match& m) {
  if (!causal(m)) return false;
  return m.type("mask").dtype != DType::boolean || m.number("h").value_or(0) <= kHidden;
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
     .condition = causal_and_hidden},
    {.name = "neutral mask, gradient",
     .match = "attend_backward(g, q, k, v, out, m, mask, seed, n, p, causal, s, safe, h)",
     .give = "attend_backward(g, q, k, v, out, m, none, seed, n, p, causal, s, safe, h)",
     .condition = neutral},
    {.name = "causal mask, gradient",
     .match = "attend_backward(g, q, k, v, out, m, mask, seed, n, p, false, s, safe, h)",
     .give = "attend_backward(g, q, k, v, out, m, none, seed, n, p, true, s, safe, h)",
     .condition = causal_and_hidden},
};

}  // namespace

MaskKind mask_kind(const Graph& graph, ValueId mask, bool keeps) {
  const Type& type = graph.type(mask);
  if (type.rank() < 2) return MaskKind::other;
  const auto elements = Elements::of(graph, mask);
  if (!elements) return MaskKind::other;
  const MaskIndices at = indices_of(graph.context(), type);
  if (is_neutral(*elements, at, type, keeps)) return MaskKind::neutral;
  return is_causal(*elements, at, type, keeps) ? MaskKind::causal : MaskKind::other;
}

RuleSet mask_rules(const graph::OpTable& table) { return {kRules, {}, table}; }

std::optional<Graph> fold_masks(const Graph& graph, PassContext&) {
  return apply_rules(graph, mask_rules(graph.table()));
}

}  // namespace inkle::passes
