#include "passes/written_attention.h"

#include <algorithm>

#include "graph/builder.h"

namespace inkle::passes::written_attention {
namespace {

using abi::DType;
using graph::Argument;
using graph::Expr;
using graph::Graph;
using graph::has;
using graph::Node;
using graph::Sizes;
using graph::Type;

bool same_size(Expr a, Expr b) { return a == b || sym::equal(a, b).value_or(false); }

std::optional<double> number_of(const Argument& a) {
  if (const auto* d = std::get_if<double>(&a)) return *d;
  if (const auto* e = std::get_if<Expr>(&a)) {
    if (const auto c = e->constant()) return static_cast<double>(*c);
  }
  return std::nullopt;
}

bool is_last(const Argument& dim, const Type& type) {
  const auto d = number_of(dim);
  return d == -1.0 || d == static_cast<double>(type.rank()) - 1;
}

class Finder {
 public:
  Finder(const Graph& graph, abi::DeviceKind kind)
      : graph_(graph), kind_(kind), producer_(graph::producers(graph)) {
    users_.resize(graph.value_count());
    is_output_.assign(graph.value_count(), false);
    std::vector<bool> live(graph.value_count(), false);
    for (const graph::Output& output : graph.outputs) {
      const auto* v = std::get_if<ValueId>(&output.value);
      if (v != nullptr && !v->is_none()) live[v->index] = is_output_[v->index] = true;
    }
    for (std::size_t i = graph.nodes.size(); i-- > 0;) {
      const Node& node = graph.nodes[i];
      const bool is_live =
          has(node.op->traits, graph::Trait::effect) || node.eager_target ||
          std::ranges::any_of(node.results, [&](ValueId v) { return live[v.index]; });
      if (!is_live) continue;
      graph::for_each_operand(node, [&](ValueId v) {
        live[v.index] = true;
        std::vector<std::size_t>& list = users_[v.index];
        if (list.empty() || list.back() != i) list.push_back(i);
      });
    }
  }

  std::optional<Found> at(std::size_t n) const {
    const Node& node = graph_.nodes[n];
    if (node.op->name != "_softmax_backward_data") return std::nullopt;
    const ValueId p = operand(node, 1);
    if (!is_last(node.args[2], type(p))) return std::nullopt;
    Found found;
    if (!forward(n, p, found) || !backward(n, found)) return std::nullopt;
    if (!fits(found)) return std::nullopt;
    found.query = by_heads(found.q, found.scores[2], found.features, found.scores);
    found.key = by_heads(found.kt, found.features, found.scores[3], found.scores).other_way();
    found.values_of_keys = by_heads(found.v, found.scores[3], found.values, found.scores);
    found.gradient = by_heads(found.grad, found.scores[2], found.values, found.scores);
    return found;
  }

 private:
  const Node* made_by(ValueId v) const {
    const std::int32_t n = v.is_none() ? -1 : producer_[v.index];
    return n < 0 ? nullptr : &graph_.nodes[static_cast<std::size_t>(n)];
  }
  static bool is(const Node& node, std::initializer_list<std::string_view> names) {
    return std::ranges::find(names, node.op->name) != names.end();
  }
  static bool is_product(const Node& node) { return is(node, {"bmm", "matmul"}); }
  static ValueId operand(const Node& node, std::size_t n) {
    const auto* v = n < node.args.size() ? std::get_if<ValueId>(&node.args[n]) : nullptr;
    return v == nullptr ? ValueId{} : *v;
  }
  const Type& type(ValueId v) const { return graph_.type(v); }

  // Whether a node gives a view that keeps the last two dimensions, or exchanges them.
  std::optional<bool> view(const Node& node) const {
    const ValueId from = operand(node, 0);
    if (from.is_none() || node.results.size() != 1) return std::nullopt;
    const Type &a = type(from), &b = type(node.results[0]);
    if (a.rank() < 2 || b.rank() < 2) return std::nullopt;
    const Expr *x = &a.sizes[a.rank() - 2], *y = &b.sizes[b.rank() - 2];
    if (is(node, {"view", "_unsafe_view", "reshape"})) {
      if (same_size(x[0], y[0]) && same_size(x[1], y[1])) return false;
      return std::nullopt;
    }
    if (!is(node, {"transpose"})) return std::nullopt;
    const auto rank = static_cast<double>(a.rank());
    double dims[2];
    for (std::size_t d = 0; d < 2; ++d) {
      const auto given = number_of(node.args[d + 1]);
      if (!given) return std::nullopt;
      dims[d] = *given < 0 ? *given + rank : *given;
    }
    if (dims[0] > dims[1]) std::swap(dims[0], dims[1]);
    if (dims[0] == rank - 2 && dims[1] == rank - 1) return true;
    return std::nullopt;
  }

  Matrix resolve(ValueId v) const {
    Matrix m{v};
    for (const Node* node = made_by(v); node != nullptr; node = made_by(m.root)) {
      const auto turns = view(*node);
      if (!turns) break;
      m.root = operand(*node, 0);
      m.transposed ^= *turns;
    }
    return m;
  }

  // The first value behind views that is over (batch, head, rows, columns), or transposed.
  Matrix by_heads(ValueId v, Expr rows, Expr columns, const Sizes& scores) const {
    Matrix m{v};
    while (true) {
      const Sizes& s = type(m.root).sizes;
      if (s.size() == 4 && same_size(s[0], scores[0]) && same_size(s[1], scores[1]) &&
          same_size(s[2], m.transposed ? columns : rows) &&
          same_size(s[3], m.transposed ? rows : columns)) {
        return m;
      }
      const Node* node = made_by(m.root);
      const auto turns = node == nullptr ? std::nullopt : view(*node);
      if (!turns) return {v};
      m.root = operand(*node, 0);
      m.transposed ^= *turns;
    }
  }

  // All matrix products that read v through views; false where another op reads it.
  bool products(ValueId v, bool transposed, std::vector<Use>& uses) const {
    if (is_output_[v.index]) return false;
    for (const std::size_t n : users_[v.index]) {
      const Node& node = graph_.nodes[n];
      if (is_product(node)) {
        for (std::size_t o = 0; o < 2; ++o) {
          if (operand(node, o).index == v.index) uses.push_back({n, o, transposed});
        }
        continue;
      }
      const auto turns = view(node);
      if (!turns || !products(node.results[0], transposed != *turns, uses)) return false;
    }
    return true;
  }

  // The only live user but `except`.
  const Node* only_user(ValueId v, std::size_t except) const {
    if (is_output_[v.index]) return nullptr;
    const Node* found = nullptr;
    for (const std::size_t n : users_[v.index]) {
      if (n == except) continue;
      if (found != nullptr) return nullptr;
      found = &graph_.nodes[n];
    }
    return found;
  }

  static std::optional<double> factor(const Node& node) {
    const bool multiplies = is(node, {"mul"});
    if (!multiplies && !is(node, {"div"})) return std::nullopt;
    const auto by = number_of(node.args[1]);
    if (!by || (!multiplies && *by == 0)) return std::nullopt;
    return multiplies ? *by : 1 / *by;
  }

  // The number that a scalar tensor, or an argument, holds.
  std::optional<double> scalar(const Argument& a) const {
    const auto* v = std::get_if<ValueId>(&a);
    if (v == nullptr) return number_of(a);
    const Node* node = made_by(*v);
    if (node == nullptr || type(*v).rank() != 0) return std::nullopt;
    if (is(*node, {"scalar_tensor"})) return number_of(node->args[0]);
    if (is(*node, {"full"})) return number_of(node->args[1]);
    return is(*node, {"zeros"}) ? std::optional(0.0) : std::nullopt;
  }

  // Of a node that puts a number in place of some scores: the mask, and which operand the scores
  // are.
  std::optional<std::pair<Mask, std::size_t>> replacing(const Node& node) const {
    Mask mask;
    std::optional<double> hidden;
    std::size_t scores = 0;
    if (is(node, {"masked_fill"})) {
      mask.flags = operand(node, 1);
      mask.keeps = false;
      hidden = scalar(node.args[2]);
    } else if (is(node, {"where"})) {
      mask.flags = operand(node, 0);
      hidden = scalar(node.args[2]);
      scores = 1;
      if (!hidden) {
        hidden = scalar(node.args[1]);
        mask.keeps = false;
        scores = 2;
      }
    }
    if (!hidden || mask.flags.is_none() || operand(node, scores).is_none()) return std::nullopt;
    mask.hidden = *hidden;
    return std::pair(mask, scores);
  }

  // From the input of the softmax up to the matrix product of query and key.
  std::optional<std::size_t> scores(ValueId x, Found& found) const {
    bool scaled = false, masked = false;
    for (const Node* node = made_by(x); node != nullptr; node = made_by(x)) {
      if (is_product(*node)) return static_cast<std::size_t>(node - graph_.nodes.data());
      const auto turns = view(*node);
      if (casts(*node, found) || (turns && !*turns)) {
        x = operand(*node, 0);
      } else if (const auto by = factor(*node)) {
        found.scale *= *by;
        scaled = true;
        x = operand(*node, 0);
      } else if (scaled || masked) {
        return std::nullopt;  // a mask of what is scaled afterwards, or a second one
      } else if (const auto replaced = replacing(*node)) {
        found.mask = replaced->first;
        masked = true;
        x = operand(*node, replaced->second);
      } else if (is(*node, {"add"})) {
        const auto alpha = node->args.size() > 2 ? number_of(node->args[2]) : 1.0;
        const ValueId a = operand(*node, 0), b = operand(*node, 1);
        if (alpha != 1.0 || a.is_none() || b.is_none()) return std::nullopt;
        const bool second = comes_from_product(a);
        found.mask.added = second ? b : a;
        masked = true;
        x = second ? a : b;
      } else {
        return std::nullopt;
      }
    }
    return std::nullopt;
  }
  // Whether a node is a cast; notes to what.
  bool casts(const Node& node, Found& found) const {
    if (!is(node, {"_to_copy"})) return false;
    found.dtypes.push_back(type(node.results[0]).dtype);
    return true;
  }
  bool comes_from_product(ValueId x) const {
    for (const Node* node = made_by(x); node != nullptr; node = made_by(x)) {
      if (is_product(*node)) return true;
      const auto turns = view(*node);
      if (!is(*node, {"_to_copy"}) && !factor(*node) && !(turns && !*turns)) return false;
      x = operand(*node, 0);
    }
    return false;
  }

  static std::optional<Dropout> dropout(const Node& node) {
    if (!is(node, {"seeded_dropout"})) return std::nullopt;
    const auto* number = std::get_if<Expr>(&node.args[2]);
    const auto p = number_of(node.args[3]);
    if (number == nullptr || !number->is_constant() || !p) return std::nullopt;
    return Dropout{operand(node, 1), *number, *p};
  }

  bool forward(std::size_t n, ValueId p, Found& found) const {
    const Node* softmax = made_by(p);
    if (softmax == nullptr || !is(*softmax, {"_softmax", "_safe_softmax"})) return false;
    const Type& weights = type(p);
    if ((weights.rank() != 3 && weights.rank() != 4) || !is_last(softmax->args[1], weights)) {
      return false;
    }
    if (weights.device.kind != kind_) return false;
    found.safe = softmax->op->name == "_safe_softmax";
    found.dtypes = {weights.dtype, type(graph_.nodes[n].results[0]).dtype};
    found.device = weights.device;
    found.scores = weights.sizes;
    if (weights.rank() == 3) {
      found.scores.insert(found.scores.begin() + 1, graph_.context().constant(1));
    }
    const auto product = scores(operand(*softmax, 0), found);
    if (!product) return false;
    found.q = operand(graph_.nodes[*product], 0);
    found.kt = operand(graph_.nodes[*product], 1);
    // Down to the matrix product with the values.
    ValueId w = p;
    std::vector<Use> uses;
    for (std::size_t except = n;; except = ~std::size_t{0}) {
      const Node* next = only_user(w, except);
      const auto drops = next == nullptr ? std::nullopt : dropout(*next);
      if (drops && !found.dropout) {
        found.dropout = drops;
      } else if (next == nullptr || !casts(*next, found)) {
        break;
      }
      w = next->results[0];
    }
    if (w.index == p.index) return weighted(p, n, found);
    if (!products(w, false, uses)) return false;
    return classify(uses, found);
  }

  // Only matrix products, and the gradient of softmax (node n), read the weights themselves.
  bool weighted(ValueId p, std::size_t n, Found& found) const {
    if (is_output_[p.index]) return false;
    std::vector<Use> uses;
    for (const std::size_t user : users_[p.index]) {
      if (user == n) continue;
      const Node& node = graph_.nodes[user];
      if (is_product(node)) {
        for (std::size_t o = 0; o < 2; ++o) {
          if (operand(node, o).index == p.index) uses.push_back({user, o, false});
        }
        continue;
      }
      const auto turns = view(node);
      if (!turns || !products(node.results[0], *turns, uses)) return false;
    }
    return classify(uses, found);
  }

  // One of the matrix products with the weights is the result; others are told apart once the
  // gradient is known.
  bool classify(const std::vector<Use>& uses, Found& found) const {
    for (const Use& use : uses) {
      const bool is_out = use.operand == 0 && !use.transposed;
      if (!is_out) continue;
      if (!found.v.is_none()) return false;
      found.v = operand(graph_.nodes[use.node], 1);
      found.parts.emplace_back(use.node, Part::out);
    }
    found.uses = uses;
    return !found.v.is_none();
  }

  bool backward(std::size_t n, Found& found) const {
    // Up to the gradient of the weights.
    ValueId x = operand(graph_.nodes[n], 0);
    bool dropped = false;
    const Node* product = made_by(x);
    for (; product != nullptr && !is_product(*product); product = made_by(x)) {
      const auto turns = view(*product);
      if (const auto drops = dropout(*product); drops && !dropped && found.dropout) {
        const Dropout& d = *found.dropout;
        const bool same =
            drops->seed.index == d.seed.index && drops->number == d.number && drops->p == d.p;
        if (!same) return false;
        dropped = true;
      } else if (!casts(*product, found) && !(turns && !*turns)) {
        return false;
      }
      x = operand(*product, 0);
    }
    if (product == nullptr || dropped != found.dropout.has_value()) return false;
    found.grad = operand(*product, 0);
    if (!(resolve(operand(*product, 1)) == resolve(found.v).other_way())) return false;
    found.first_late = static_cast<std::size_t>(product - graph_.nodes.data());
    return value_gradient(found) && score_gradients(n, found);
  }

  bool value_gradient(Found& found) const {
    const Matrix grad = resolve(found.grad);
    for (const Use& use : found.uses) {
      if (use.operand == 0 && !use.transposed) continue;  // the result
      const Matrix other = resolve(operand(graph_.nodes[use.node], 1 - use.operand));
      const bool plain = use.operand == 0 && use.transposed && other == grad;
      const bool transposed = use.operand == 1 && !use.transposed && other == grad.other_way();
      if (!plain && !transposed) return false;
      found.parts.emplace_back(use.node, plain ? Part::dv : Part::dv_transposed);
      if (use.node >= found.first_late) continue;
      found.first_late = use.node;
      // The other product may read it through a view that comes later.
      if (plain && !is_before(found.grad, use.node)) {
        found.grad = operand(graph_.nodes[use.node], 1);
      }
    }
    return is_before(found.grad, found.first_late);
  }
  bool is_before(ValueId v, std::size_t n) const {
    return producer_[v.index] < static_cast<std::int32_t>(n);
  }

  bool score_gradients(std::size_t n, Found& found) const {
    ValueId x = graph_.nodes[n].results[0];
    double scale = 1;
    bool masked = false;
    for (const Node* next = only_user(x, ~std::size_t{0}); next != nullptr;
         next = only_user(x, ~std::size_t{0})) {
      if (const auto by = factor(*next); by && operand(*next, 0).index == x.index) {
        scale *= *by;
      } else if (const auto replaced = replacing(*next)) {
        const Mask& mask = replaced->first;
        const bool same = mask.flags.index == found.mask.flags.index &&
                          mask.keeps == found.mask.keeps && mask.hidden == 0 &&
                          operand(*next, replaced->second).index == x.index;
        if (!same || masked || scale != 1) return false;
        masked = true;
      } else if (!casts(*next, found)) {
        break;
      }
      x = next->results[0];
    }
    if (scale != found.scale || masked != !found.mask.flags.is_none()) return false;
    std::vector<Use> uses;
    if (!products(x, false, uses)) return false;
    const Matrix q = resolve(found.q), kt = resolve(found.kt);
    for (const Use& use : uses) {
      const Matrix other = resolve(operand(graph_.nodes[use.node], 1 - use.operand));
      Part part = Part::dq;
      if (use.operand == 0 && !use.transposed && other == kt.other_way()) {
        part = Part::dq;
      } else if (use.operand == 1 && use.transposed && other == kt) {
        part = Part::dq_transposed;
      } else if (use.operand == 0 && use.transposed && other == q) {
        part = Part::dk;
      } else if (use.operand == 1 && !use.transposed && other == q.other_way()) {
        part = Part::dk_transposed;
      } else {
        return false;
      }
      found.parts.emplace_back(use.node, part);
    }
    return true;
  }

  // (batch, head) of an operand, alone or merged.
  bool is_stack(ValueId v, const Sizes& scores) const {
    const Type& t = type(v);
    if (t.rank() == 4) return same_size(t.sizes[0], scores[0]) && same_size(t.sizes[1], scores[1]);
    return t.rank() == 3 && same_size(t.sizes[0], scores[0] * scores[1]);
  }

  bool fits(Found& found) const {
    const Type &q = type(found.q), &v = type(found.v);
    const bool known = q.dtype == DType::f32 || abi::is_reduced_float(q.dtype);
    for (const ValueId x : {found.q, found.kt, found.v, found.grad}) {
      const Type& t = type(x);
      if (!known || t.dtype != q.dtype || t.device != found.device) return false;
      if (!is_stack(x, found.scores)) return false;
    }
    // All is computed in f32, and rounded to the query's type at the end alone.
    for (const DType dtype : found.dtypes) {
      if (dtype != DType::f32 && dtype != q.dtype) return false;
    }
    if (!same_size(q.sizes[q.rank() - 2], found.scores[2])) return false;
    if (!same_size(type(found.kt).sizes.back(), found.scores[3])) return false;
    found.features = q.sizes.back();
    found.values = v.sizes.back();
    for (const Expr width : {found.features, found.values}) {
      if (!width.is_constant() || width.is_constant(0)) return false;
    }
    std::size_t out = 0;
    for (const auto& [n, part] : found.parts) {
      const Node& node = graph_.nodes[n];
      if (node.keep != graph::Keep::free || type(node.results[0]).dtype != q.dtype) return false;
      if (part == Part::out) out = n;
    }
    if (out >= found.first_late) return false;
    for (const auto& [n, part] : found.parts) {
      if (part != Part::out && n < found.first_late) return false;
    }
    const ValueId mask = found.mask.flags.is_none() ? found.mask.added : found.mask.flags;
    return mask.is_none() || mask_fits(mask, found);
  }

  bool mask_fits(ValueId mask, const Found& found) const {
    const Type& t = type(mask);
    const bool is_bool = !found.mask.flags.is_none();
    const bool is_number = t.dtype == DType::f32 || abi::is_reduced_float(t.dtype);
    if (is_bool ? t.dtype != DType::boolean : !is_number) return false;
    if (t.device != found.device) return false;
    const bool is_flat = found.scores[1].is_constant(1) && t.rank() == 3;
    Sizes wanted = found.scores;
    if (is_flat) wanted.erase(wanted.begin() + 1);
    if (t.rank() > wanted.size()) return false;
    for (std::size_t d = 0; d < t.rank(); ++d) {
      const Expr size = t.sizes[d];
      if (!size.is_constant(1) && !same_size(size, wanted[wanted.size() - t.rank() + d]))
        return false;
    }
    return true;
  }

  const Graph& graph_;
  abi::DeviceKind kind_;
  std::vector<std::int32_t> producer_;
  std::vector<std::vector<std::size_t>> users_;  // live ones, by value
  std::vector<bool> is_output_;
};

}  // namespace

std::vector<Found> find(const Graph& graph, abi::DeviceKind kind) {
  std::vector<Found> all;
  const auto is_gradient = [](const Node& node) {
    return node.op->name == "_softmax_backward_data";
  };
  if (std::ranges::none_of(graph.nodes, is_gradient)) return all;
  const Finder finder(graph, kind);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    if (auto found = finder.at(n)) all.push_back(std::move(*found));
  }
  return all;
}

}  // namespace inkle::passes::written_attention
