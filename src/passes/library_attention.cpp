#include "passes/library_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "graph/builder.h"
#include "passes/fold_masks.h"
#include "passes/written_attention.h"

namespace inkle::passes {
namespace {

using abi::DType;
using graph::Argument;
using graph::Builder;
using graph::Expr;
using graph::Graph;
using graph::Node;
using graph::Rewriter;
using graph::Sizes;
using graph::Type;
using graph::ValueId;
using written_attention::Found;
using written_attention::Mask;
using written_attention::Matrix;
using written_attention::Part;

// exp(-1e30) is 0 beside any score, and kernels may multiply it by log2(e).
constexpr double kHidden = -1e30;
// Mask values that leave no weight beside the scores of real models, also where they are added to a
// score: as models write them in f16 and in wider types.
constexpr double kHidesHalf = -6e4, kHides = -1e9;
// A mask multiplied by so large a number selects columns; its exact values do not matter.
constexpr double kLargeFactor = 1e4;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// How the mask is passed to the library.
struct Bias {
  // Scores are replaced by minus infinity, replaced by another number, or added to.
  enum class Kind { none, causal, removed, replaced, added } kind = Kind::none;

  [[nodiscard]] bool is_given() const { return kind != Kind::none && kind != Kind::causal; }
  // Fully masked rows attend to all columns alike: beside so low a number their scores do not
  // count. They get a query of 0 and no bias, since the log-sum-exp that is kept for the backward
  // would round away the sum beside the number.
  [[nodiscard]] bool has_fully_masked_rows() const {
    return kind == Kind::replaced || kind == Kind::added;
  }
};

double hiding(DType dtype) { return dtype == DType::f16 ? kHidesHalf : kHides; }

const Node* made_by(const Graph& graph, const std::vector<std::int32_t>& producers, ValueId v) {
  const std::int32_t n = v.is_none() ? -1 : producers[v.index];
  return n < 0 ? nullptr : &graph.nodes[static_cast<std::size_t>(n)];
}

// Whether an f32 mask may be rounded to 16 bits, since it only selects columns: it is multiplied by
// a large number, or selects one of 0 and a large number.
bool says_which(const Graph& graph, const std::vector<std::int32_t>& producers, ValueId mask) {
  const auto number = [&](const Argument& a) -> std::optional<double> {
    if (const auto* d = std::get_if<double>(&a)) return *d;
    if (const auto* e = std::get_if<Expr>(&a); e != nullptr && e->is_constant()) {
      return static_cast<double>(*e->constant());
    }
    const auto* v = std::get_if<ValueId>(&a);
    const Node* node = v == nullptr ? nullptr : made_by(graph, producers, *v);
    if (node == nullptr) return std::nullopt;
    const bool is_full = node->op->name == "full";
    if (!is_full && node->op->name != "scalar_tensor") return std::nullopt;
    const auto* d = std::get_if<double>(&node->args[is_full ? 1 : 0]);
    return d == nullptr ? std::nullopt : std::optional(*d);
  };
  const auto is_choice = [&](const Argument& x, const Argument& y) {
    const auto a = number(x), b = number(y);
    return a && b && (*a == 0 || *b == 0) && *a + *b <= -kLargeFactor;
  };
  for (std::size_t steps = 0; steps < 8; ++steps) {
    const Node* node = made_by(graph, producers, mask);
    if (node == nullptr || node->args.empty()) return false;
    if (node->op->name == "mul") return std::abs(number(node->args[1]).value_or(0)) >= kLargeFactor;
    if (node->op->name == "where") return is_choice(node->args[1], node->args[2]);
    if (node->op->name == "masked_fill") return is_choice(node->args[0], node->args[2]);
    const auto* from = std::get_if<ValueId>(&node->args[0]);
    const bool passes_on = has(node->op->traits, graph::Trait::view) || node->op->name == "clone";
    if (!passes_on || from == nullptr) return false;
    mask = *from;
  }
  return false;
}

std::optional<Bias> bias_of(const Graph& graph, const std::vector<std::int32_t>& producers,
                            const Found& found) {
  const Mask& mask = found.mask;
  const DType dtype = graph.type(found.q).dtype;
  if (mask.added.is_none() && mask.flags.is_none()) return Bias{};
  const bool is_added = mask.flags.is_none();
  const ValueId value = is_added ? mask.added : mask.flags;
  const bool replaces_all = mask.hidden <= hiding(dtype);
  const MaskKind kind = mask_kind(graph, value, is_added || mask.keeps);
  if (kind == MaskKind::neutral) return Bias{};
  if (kind == MaskKind::causal && (is_added || replaces_all)) return Bias{Bias::Kind::causal};
  const Type& type = graph.type(value);
  // Whether a row sees any column is reduced over the mask, so its columns must not be broadcast.
  if (type.rank() == 0 || (type.sizes.back().is_constant(1) && !found.scores[3].is_constant(1))) {
    return std::nullopt;
  }
  if (is_added) {
    const bool is_rounded = type.dtype == DType::f32 && abi::is_reduced_float(dtype);
    if (type.dtype != dtype && !(is_rounded && says_which(graph, producers, value))) {
      return std::nullopt;
    }
    return Bias{Bias::Kind::added};
  }
  if (mask.hidden == -kInfinity) return Bias{Bias::Kind::removed};
  return replaces_all ? std::optional(Bias{Bias::Kind::replaced}) : std::nullopt;
}

// Elements of 16 bits that kernels load at once.
constexpr std::int64_t kAtOnce = 8;

// Of sizes (batch, head, row, feature): the features of all heads of a row are adjacent, as GEMMs
// write and read them.
Sizes by_rows(sym::Context& context, const Sizes& sizes) {
  const Sizes s = graph::contiguous_strides(context, {sizes[0], sizes[2], sizes[1], sizes[3]});
  return {s[0], s[2], s[1], s[3]};
}

bool is_whole(Expr e) { return sym::divides(kAtOnce, e); }

// Whether the offset of a view in its operand is a multiple of kAtOnce.
bool starts_whole(const Graph& natural, const Node& node, ValueId from) {
  const std::string_view name = node.op->name;
  for (const char* same : {"view", "_unsafe_view", "reshape", "transpose", "permute", "t", "expand",
                           "unsqueeze", "squeeze", "squeeze_dims", "movedim"}) {
    if (name == same) return true;
  }
  const bool by_size = name == "split" || name == "split_with_sizes";
  if (!by_size && name != "slice" && name != "select" && name != "unbind") return false;
  const Type& type = natural.type(from);
  const auto* dim = std::get_if<Expr>(&node.args[by_size ? 2 : 1]);
  if (dim == nullptr || !dim->is_constant() || !type.strides) return false;
  const std::int64_t d = *dim->constant();
  const auto at = static_cast<std::size_t>(d < 0 ? d + static_cast<std::int64_t>(type.rank()) : d);
  if (at >= type.rank()) return false;
  if (is_whole((*type.strides)[at])) return true;
  if (name == "slice" && std::holds_alternative<graph::None>(node.args[2])) return true;
  const Argument& steps = node.args[name == "slice" ? 2 : 1];
  if (const auto* list = std::get_if<Sizes>(&steps)) return std::ranges::all_of(*list, is_whole);
  const auto* step = std::get_if<Expr>(&steps);
  return name != "select" && name != "unbind" && step != nullptr && is_whole(*step);
}
bool starts_whole(const Graph& natural, ValueId v) {
  const std::vector<std::int32_t> producers = graph::producers(natural);
  for (const Node* node = made_by(natural, producers, v);
       node != nullptr && has(node->op->traits, graph::Trait::view);
       node = made_by(natural, producers, v)) {
    const auto* from = node->args.empty() ? nullptr : std::get_if<ValueId>(&node->args[0]);
    if (from == nullptr || from->is_none() || !starts_whole(natural, *node, *from)) return false;
    v = *from;
  }
  return true;
}

// One attention in the new graph.
class Writer {
 public:
  // `natural`: the old graph, each value with the strides that it has where nothing is copied.
  Writer(Rewriter& rewriter, const Graph& natural, Found& found, const Bias& bias,
         const AttentionCalls& calls)
      : r_(rewriter),
        b_(rewriter.builder()),
        natural_(natural),
        found_(found),
        bias_(bias),
        calls_(calls) {}

  ValueId part(Part part, const Sizes& sizes) {
    if (part == Part::out) {
      std::vector<Argument> args = operands();
      add_bias(args);
      found_.forward = b_.eager(calls_.name, calls_.forward, std::move(args), calls_.results);
      return shaped(found_.forward[0], sizes, false);
    }
    gradient();
    const bool transposed =
        part == Part::dq_transposed || part == Part::dk_transposed || part == Part::dv_transposed;
    const std::size_t n = part == Part::dq || part == Part::dq_transposed   ? 0
                          : part == Part::dk || part == Part::dk_transposed ? 1
                                                                            : 2;
    ValueId v = found_.backward[n];
    // Scores that were replaced have no gradient; those that were added to have.
    if (n == 0 && bias_.kind == Bias::Kind::replaced) v = b_.node("where", {sees_any(), v, 0.0});
    return shaped(v, sizes, transposed);
  }

  void gradient() {
    if (!found_.backward.empty()) return;
    const ValueId grad = operand(found_.gradient, found_.scores[2], found_.values);
    std::vector<Argument> args = operands();
    args.insert(args.begin(), grad);
    args.insert(args.end(), found_.forward.begin(), found_.forward.end());
    add_bias(args);
    found_.backward =
        b_.eager(calls_.name + "_backward", calls_.backward, std::move(args), calls_.gradients);
  }

  // The type of an operand over (batch, head, row, feature), with the strides that it has where
  // nothing is copied; row-major where kernels could not load it 16 bytes at a time.
  static Type type_of(const Graph& natural, const Found& found, const Matrix& m, Expr rows,
                      Expr columns) {
    Type type = natural.type(m.root);
    Sizes strides = type.strides.value_or(Sizes{});
    if (strides.size() == 3) strides.insert(strides.begin(), strides[0] * found.scores[1]);
    if (m.transposed && strides.size() == 4) std::swap(strides[2], strides[3]);
    type.sizes = {found.scores[0], found.scores[1], rows, columns};
    const bool is_read = strides.size() == 4 && strides[3].is_constant(1) &&
                         std::all_of(strides.begin(), strides.begin() + 3, is_whole) &&
                         starts_whole(natural, m.root);
    type.strides = is_read ? strides : graph::contiguous_strides(natural.context(), type.sizes);
    return type;
  }

 private:
  ValueId turn(ValueId v) { return b_.node("transpose", {v, b_.integer(-2), b_.integer(-1)}); }
  ValueId shaped(ValueId v, const Sizes& sizes, bool transposed) {
    if (transposed) v = turn(v);
    return b_.type(v).rank() == sizes.size() ? v : b_.node("reshape", {v, sizes});
  }

  Sizes row_major(const Sizes& sizes) { return graph::contiguous_strides(b_.context(), sizes); }
  // With the strides that the call requires.
  ValueId laid(ValueId v, const Sizes& strides) {
    const auto& own = b_.type(v).strides;
    if (own && *own != strides) v = b_.node("clone", {v});
    b_.graph().type(v).strides = strides;
    return v;
  }

  ValueId operand(const Matrix& m, Expr rows, Expr columns) {
    const Type type = type_of(natural_, found_, m, rows, columns);
    ValueId v = r_.mapped(m.root);
    if (m.transposed) v = turn(v);
    if (b_.type(v).rank() != 4) v = b_.node("reshape", {v, type.sizes});
    return laid(v, *type.strides);
  }

  std::vector<Argument> operands() {
    const Sizes& s = found_.scores;
    ValueId q = operand(found_.query, s[2], found_.features);
    if (bias_.has_fully_masked_rows()) {
      const ValueId sees = sees_any();
      // If it were kept, the query, key and value of one GEMM would be kept separately.
      b_.set_keep(graph::Keep::recomputed);
      q = b_.node("where", {sees, q, 0.0});
      q = laid(q, by_rows(b_.context(), b_.type(q).sizes));
      b_.set_keep(graph::Keep::free);
    }
    const ValueId k = operand(found_.key, s[3], found_.features);
    const ValueId v = operand(found_.values_of_keys, s[3], found_.values);
    return {q, k, v};
  }

  ValueId at_least_flat(ValueId v) {
    while (b_.type(v).rank() < 2) v = b_.node("unsqueeze", {v, b_.integer(0)});
    const bool is_flat = found_.scores[1].is_constant(1) && b_.type(v).rank() == 3;
    return is_flat ? b_.node("unsqueeze", {v, b_.integer(1)}) : v;
  }
  // True where scores are not masked.
  ValueId shown() {
    const ValueId v = at_least_flat(r_.mapped(found_.mask.flags));
    return found_.mask.keeps ? v : b_.node("logical_not", {v});
  }
  ValueId added() { return at_least_flat(r_.mapped(found_.mask.added)); }
  ValueId top() { return b_.node("amax", {added(), Sizes{b_.integer(-1)}, true}); }
  // By row, with one column: whether the row sees any.
  ValueId sees_any() {
    if (bias_.kind != Bias::Kind::added) return b_.node("any_dim", {shown(), b_.integer(-1), true});
    return b_.node("gt", {top(), hiding(b_.type(added()).dtype)});
  }

  void add_bias(std::vector<Argument>& args) {
    if (!bias_.is_given()) return;
    const DType dtype = b_.type(r_.mapped(found_.q)).dtype;
    // No finite f16 is low enough.
    const double hidden = dtype == DType::f16 ? -kInfinity : kHidden;
    ValueId bias;
    if (bias_.kind == Bias::Kind::added) {
      const ValueId v = added();
      const ValueId seen = dtype == DType::f16 ? v : b_.node("clamp_min", {v, kHidden});
      // NaN in rows of the mask that are entirely minus infinity.
      bias = b_.node("where", {sees_any(), seen, b_.node("sub", {v, top()})});
    } else {
      const double fully_masked = bias_.kind == Bias::Kind::removed ? std::nan("") : 0.0;
      bias = b_.node("where", {sees_any(), b_.node("where", {shown(), 0.0, hidden}), fully_masked});
    }
    if (b_.type(bias).dtype != dtype) bias = b_.node("_to_copy", {bias, dtype});
    args.emplace_back(laid(bias, row_major(b_.type(bias).sizes)));
  }

  Rewriter& r_;
  Builder& b_;
  const Graph& natural_;
  Found& found_;
  const Bias& bias_;
  const AttentionCalls& calls_;
};

struct Attention {
  Found found;
  Bias bias;
  AttentionCalls calls;
};

Type bias_type(const Graph& graph, const Found& found) {
  const Mask& mask = found.mask;
  const Type& q = graph.type(found.q);
  Type type = graph.type(mask.flags.is_none() ? mask.added : mask.flags);
  while (type.sizes.size() < 2) {
    type.sizes.insert(type.sizes.begin(), graph.context().constant(1));
  }
  if (type.sizes.size() == 3 && found.scores[1].is_constant(1)) {
    type.sizes.insert(type.sizes.begin() + 1, graph.context().constant(1));
  }
  type.dtype = q.dtype;
  type.strides = graph::contiguous_strides(graph.context(), type.sizes);
  return type;
}

std::optional<Attention> ask(const Graph& graph, const Graph& natural,
                             const std::vector<std::int32_t>& producers, Found found,
                             const Options& options) {
  // torch decomposes its own attention into a safe softmax where no kernel takes it; kernels do not
  // support a dropout of 1.
  if (found.safe || (found.dropout && found.dropout->p >= 1)) return std::nullopt;
  const auto bias = bias_of(graph, producers, found);
  if (!bias) return std::nullopt;
  const Sizes& s = found.scores;
  AttentionRequest request{
      .query = Writer::type_of(natural, found, found.query, s[2], found.features),
      .key = Writer::type_of(natural, found, found.key, s[3], found.features),
      .value = Writer::type_of(natural, found, found.values_of_keys, s[3], found.values),
      .grad = Writer::type_of(natural, found, found.gradient, s[2], found.values),
      .is_causal = bias->kind == Bias::Kind::causal,
      .scale = found.scale,
      .dropout = found.dropout ? found.dropout->p : 0,
      .backward_source = graph.nodes[found.first_late].source};
  for (const auto& [n, part] : found.parts) {
    if (part == Part::out) request.forward_source = graph.nodes[n].source;
  }
  if (bias->has_fully_masked_rows()) {
    request.query.strides = by_rows(graph.context(), request.query.sizes);
  }
  if (bias->is_given()) request.bias = bias_type(graph, found);
  auto calls = options.attention(request);
  if (!calls) return std::nullopt;
  return Attention{std::move(found), *bias, std::move(*calls)};
}

// Free strides become row-major, those of views follow from their operands.
Graph with_natural_strides(const Graph& graph) {
  Graph natural = graph;
  std::vector<bool> is_view(graph.value_count(), false);
  for (const Node& node : graph.nodes) {
    if (!has(node.op->traits, graph::Trait::view) || node.op->infer == nullptr) continue;
    for (const ValueId v : node.results) is_view[v.index] = true;
  }
  for (std::uint32_t v = 0; v < graph.value_count(); ++v) {
    Type& type = natural.type(ValueId{v});
    if (!is_view[v] && !type.strides) {
      type.strides = graph::contiguous_strides(graph.context(), type.sizes);
    }
  }
  graph::settle_views(natural);
  return natural;
}

}  // namespace

std::optional<Graph> library_attention(const Graph& graph, PassContext& context) {
  if (!context.options.attention) return std::nullopt;
  std::vector<Found> candidates = written_attention::find(graph, abi::DeviceKind::cuda);
  if (candidates.empty()) return std::nullopt;
  const Graph natural = with_natural_strides(graph);
  const std::vector<std::int32_t> producers = graph::producers(graph);
  std::vector<Attention> all;
  for (Found& found : candidates) {
    if (auto a = ask(graph, natural, producers, std::move(found), context.options)) {
      all.push_back(std::move(*a));
    }
  }
  if (all.empty()) return std::nullopt;
  std::unordered_map<std::size_t, std::pair<std::size_t, Part>> parts;
  std::unordered_map<std::size_t, std::size_t> late;
  for (std::size_t a = 0; a < all.size(); ++a) {
    for (const auto& [node, part] : all[a].found.parts) parts[node] = {a, part};
    late[all[a].found.first_late] = a;
  }
  Rewriter rewriter(graph, graph.name);
  return std::move(rewriter).run([&](Rewriter& r, const Node&,
                                     const Node& node) -> std::optional<std::vector<ValueId>> {
    const auto n = static_cast<std::size_t>(&node - graph.nodes.data());
    const auto writer = [&](Attention& a) { return Writer(r, natural, a.found, a.bias, a.calls); };
    if (const auto at = late.find(n); at != late.end()) writer(all[at->second]).gradient();
    const auto at = parts.find(n);
    if (at == parts.end()) return std::nullopt;
    const auto [a, part] = at->second;
    return std::vector<ValueId>{writer(all[a]).part(part, graph.type(node.results[0]).sizes)};
  });
}

}  // namespace inkle::passes
