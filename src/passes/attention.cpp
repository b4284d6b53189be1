#include "passes/attention.h"

#include <algorithm>
#include <array>

#include "passes/conditions.h"

namespace inkle::passes {
namespace {

using abi::DType;
using graph::Expr;
using graph::Graph;
using graph::None;
using graph::Sizes;
using graph::Type;
using graph::ValueId;

bool equal_sizes(std::span<const Expr> a, std::span<const Expr> b) {
  return std::ranges::equal(
      a, b, [](Expr x, Expr y) { return x == y || sym::equal(x, y).value_or(false); });
}

std::span<const Expr> batch(const Type& type) {
  return std::span<const Expr>(type.sizes).first(type.rank() - 2);
}

std::span<const Expr> matrix(const Type& type) { return std::span<const Expr>(type.sizes).last(2); }

// a and b have the batch dimensions of the result, merged into one for bmm.
bool merged_batches(Match& m) {
  const Type& root = m.root_type();
  const Type& a = m.type("a");
  const Type& b = m.type("b");
  if (root.rank() < 4 || a.rank() != root.rank() || b.rank() != root.rank()) return false;
  return equal_sizes(batch(a), batch(root)) && equal_sizes(batch(b), batch(root)) &&
         equal_sizes(matrix(a), matrix(m.type("a3"))) &&
         equal_sizes(matrix(b), matrix(m.type("b3")));
}

constexpr Rule kProducts[] = {
    {.name = "bmm between views",
     .match = "view/_unsafe_view/reshape(bmm(a3: view/_unsafe_view/reshape(a, _), "
              "b3: view/_unsafe_view/reshape(b, _)), _)",
     .give = "matmul(a, b)",
     .condition = merged_batches,
     .consumes = true},
};

// --- Attention
// ------------------------------------------------------------------------------------

// Factors by name: those of the scores' numerator and denominator.
double scale_of(const Match& m) {
  double scale = 1;
  for (const std::string_view factor : {"c", "cq", "ck"}) scale *= m.number(factor).value_or(1);
  for (const std::string_view divisor : {"d", "dq"}) scale /= m.number(divisor).value_or(1);
  return scale;
}

bool is_last(const Match& m, std::string_view dim, std::size_t rank) {
  return dimension(m.find(dim), rank) == rank - 1;
}

// The mask broadcasts to the scores.
bool mask_fits(const Type& mask, const Type& q, const Type& kt) {
  Sizes scores(q.sizes.begin(), q.sizes.end() - 1);
  scores.push_back(kt.sizes.back());
  if (mask.rank() > scores.size()) return false;
  for (std::size_t d = 0; d < mask.rank(); ++d) {
    const Expr size = mask.sizes[d];
    const Expr wanted = scores[scores.size() - mask.rank() + d];
    if (!size.is_constant(1) && !(size == wanted) && !sym::equal(size, wanted).value_or(false)) {
      return false;
    }
  }
  return true;
}

// Scores and weights are computed in f32, and rounded to the query's type at the end alone.
bool has_own_dtypes(const Match& m) {
  return std::ranges::all_of(std::array{"s", "x", "w", "y"}, [&](const char* name) {
    if (m.find(name) == nullptr) return true;
    const DType dtype = m.type(name).dtype;
    return dtype == DType::f32 || dtype == m.type("q").dtype;
  });
}

bool is_attention(Match& m) {
  const Type& q = m.type("q");
  const Type& kt = m.type("kt");
  const Type& v = m.type("v");
  const bool ranks =
      (q.rank() == 3 || q.rank() == 4) && kt.rank() == q.rank() && v.rank() == q.rank();
  if (!ranks || !is_last(m, "dim", q.rank())) return false;
  const bool dtypes = (q.dtype == DType::f32 || abi::is_reduced_float(q.dtype)) &&
                      kt.dtype == q.dtype && v.dtype == q.dtype && m.root_type().dtype == q.dtype;
  if (!dtypes || !equal_sizes(batch(q), batch(kt)) || !equal_sizes(batch(q), batch(v))) {
    return false;
  }
  const bool is_empty = q.sizes.back().is_constant(0) || v.sizes.back().is_constant(0);
  if (is_empty || !has_own_dtypes(m)) return false;
  const graph::Argument* mask = m.find("mask");
  if (mask == nullptr) {
    m.bind("mask", None{});
  } else if (!std::holds_alternative<ValueId>(*mask)) {
    return false;
  } else {
    const Type& type = m.type("mask");
    if (type.dtype != q.dtype || !mask_fits(type, q, kt)) return false;
  }
  m.bind("scale", scale_of(m));
  return true;
}

// Scores replaced by a number where a bool mask says so. A finite number that is far below any
// score may as well be added; with minus infinity, too.
bool is_selected(Match& m) {
  const double hidden = m.number("hidden").value_or(0);
  if (hidden > -1e30) return false;
  const Type& keep = m.type("keep");
  if (keep.dtype != DType::boolean || !mask_fits(keep, m.type("q"), m.type("kt"))) return false;
  m.bind("dtype", m.type("q").dtype);
  return is_attention(m);
}

constexpr Definition kDefinitions[] = {
    {"product",
     "matmul/bmm(mul(q, %cq), mul(kt, %ck)) | matmul/bmm(mul(q, %cq), kt) | "
     "matmul/bmm(div(q, %dq), kt) | matmul/bmm(q, mul(kt, %ck)) | matmul/bmm(q, kt)"},
    {"scores", "mul($product, %c) | div($product, %d) | $product"},
    {"scores32", "s: _to_copy($scores, ...) | $scores"},
    {"added", "add($scores32, mask) | $scores32"},
    {"masked", "x: _to_copy($added, ...) | $added"},
    {"kept", "where(keep, $scores32, %hidden)"},
    {"filled", "masked_fill($scores32, gone, %hidden)"},
    {"soft", "w: _softmax/softmax($masked, dim, ...)"},
    {"safe", "w: _safe_softmax($masked, dim, ...)"},
    {"soft_kept", "w: _softmax/softmax(x: _to_copy($kept, ...) | $kept, dim, ...)"},
    {"soft_filled", "w: _softmax/softmax(x: _to_copy($filled, ...) | $filled, dim, ...)"},
};

constexpr Rule kAttention[] = {
    {.name = "attention",
     .match = "matmul/bmm(y: _to_copy($soft, ...) | $soft, v)",
     .give = "sdpa(q, transpose(kt, -2, -1), v, mask, 0.0, false, scale, false, false)",
     .condition = is_attention,
     .consumes = true},
    {.name = "safe attention",
     .match = "matmul/bmm(y: _to_copy($safe, ...) | $safe, v)",
     .give = "sdpa(q, transpose(kt, -2, -1), v, mask, 0.0, false, scale, false, true)",
     .condition = is_attention,
     .consumes = true},
    {.name = "attention with selected scores",
     .match = "matmul/bmm(y: _to_copy($soft_kept, ...) | $soft_kept, v)",
     .give = "sdpa(q, transpose(kt, -2, -1), v, _to_copy(where(keep, 0.0, hidden), dtype), 0.0, "
             "false, scale, false, false)",
     .condition = is_selected,
     .consumes = true},
    {.name = "attention with filled scores",
     .match = "matmul/bmm(y: _to_copy($soft_filled, ...) | $soft_filled, v)",
     .give = "sdpa(q, transpose(kt, -2, -1), v, _to_copy(where(gone, hidden, 0.0), dtype), 0.0, "
             "false, scale, false, false)",
     .condition =
         [](Match& m) {
           m.bind("keep", m.value("gone"));
           return is_selected(m);
         },
     .consumes = true},
};

// The same where others read the weights, too.
constexpr auto kShared = [] {
  auto rules = std::to_array(kAttention);
  for (Rule& rule : rules) rule.consumes = false;
  return rules;
}();

// Nodes that the first outputs and effects depend on.
std::size_t count_forward(const Graph& graph, std::size_t outputs) {
  std::vector<bool> live(graph.value_count(), false);
  for (std::size_t i = 0; i < std::min(outputs, graph.outputs.size()); ++i) {
    const auto* v = std::get_if<ValueId>(&graph.outputs[i].value);
    if (v != nullptr && !v->is_none()) live[v->index] = true;
  }
  std::size_t count = 0;
  for (std::size_t i = graph.nodes.size(); i-- > 0;) {
    const graph::Node& node = graph.nodes[i];
    const bool is_live =
        std::ranges::any_of(node.results, [&](ValueId v) { return live[v.index]; });
    if (!is_live && !has(node.op->traits, graph::Trait::effect)) continue;
    ++count;
    graph::for_each_operand(node, [&](ValueId v) { live[v.index] = true; });
  }
  return count;
}

}  // namespace

RuleSet product_rules(const graph::OpTable& table) { return {kProducts, {}, table}; }
RuleSet attention_rules(const graph::OpTable& table) { return {kAttention, kDefinitions, table}; }

std::optional<Graph> attention(const Graph& graph, PassContext&) {
  // Matrix products that no attention takes are folded back by decompose.
  const auto products = apply_rules(graph, product_rules(graph.table()));
  auto rewritten = apply_rules(products ? *products : graph, attention_rules(graph.table()));
  return rewritten;
}

std::optional<Graph> joint_attention(const Graph& graph, PassContext& context) {
  const std::size_t outputs = context.options.forward_outputs;
  if (outputs == 0) return std::nullopt;
  const auto products = apply_rules(graph, product_rules(graph.table()));
  auto rewritten =
      apply_rules(products ? *products : graph, RuleSet(kShared, kDefinitions, graph.table()));
  // Where the forward reads the weights elsewhere, they would be computed twice.
  if (!rewritten || count_forward(*rewritten, outputs) >= count_forward(graph, outputs)) {
    return std::nullopt;
  }
  return rewritten;
}

}  // namespace inkle::passes
