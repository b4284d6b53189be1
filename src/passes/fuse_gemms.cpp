#include "passes/fuse_gemms.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "graph/builder.h"

namespace inkle::passes {
namespace {

using graph::Builder;
using graph::Expr;
using graph::Graph;
using graph::has;
using graph::Node;
using graph::Rewriter;
using graph::Trait;
using graph::ValueId;

// Fusion pays off from this share of the GEMMs' own time on, for the library calls that it saves
// (bert-base on an H200: 13 per cent; gate and up of a llama: 3, for 1 GB of weights kept twice).
constexpr double kLeastShare = 0.05;

// Limit of weights that are stored twice: prepared values have a bound, beyond which weights would
// be concatenated in every call.
constexpr double kMostBytes = 1 << 30;

// Epilogues that libraries fuse into a GEMM.
constexpr std::string_view kEpilogues[] = {"add", "gelu", "relu"};

// addmm(bias, x, t(weight)) or mm(x, t(weight)).
struct Product {
  std::size_t node = 0;
  ValueId bias;  // none of mm
  ValueId weight;
  Expr columns;
};

class Finder {
 public:
  Finder(const Graph& graph, const GemmCosts& costs)
      : graph_(graph),
        costs_(costs),
        producer_(graph::producers(graph)),
        users_(graph.nodes.size()) {
    is_parameter_.assign(graph.value_count(), false);
    for (const graph::Input& input : graph.inputs) {
      if (!input.value.is_none()) is_parameter_[input.value.index] = input.is_parameter;
    }
    for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
      graph::for_each_operand(graph.nodes[n], [&](ValueId v) {
        if (producer_[v.index] >= 0)
          users_[static_cast<std::size_t>(producer_[v.index])].push_back(n);
      });
    }
    is_output_ = graph::output_values(graph);
  }

  // Groups of two GEMMs or more, each worth fusing.
  std::vector<std::vector<Product>> run() const {
    std::map<std::pair<ValueId, bool>, std::vector<Product>> by_operand;
    for (std::size_t n = 0; n < graph_.nodes.size(); ++n) {
      const auto product = product_at(n);
      if (!product || feeds_epilogue(n)) continue;
      by_operand[{left(graph_.nodes[n]), product->bias.is_none()}].push_back(*product);
    }
    std::vector<std::vector<Product>> groups;
    double kept = 0;
    for (auto& [operand, products] : by_operand) {
      const double bytes = weight_bytes(operand.first, products);
      if (products.size() < 2 || kept + bytes > kMostBytes || !is_worth(operand.first, products)) {
        continue;
      }
      kept += bytes;
      groups.push_back(std::move(products));
    }
    return groups;
  }

  static ValueId left(const Node& node) {
    return std::get<ValueId>(node.args[node.op->name == "mm" ? 0 : 1]);
  }

 private:
  [[nodiscard]] bool is_parameter(ValueId v, std::size_t rank) const {
    return is_parameter_[v.index] && graph_.type(v).rank() == rank;
  }

  std::optional<Product> product_at(std::size_t n) const {
    const Node& node = graph_.nodes[n];
    const bool plain = node.op->name == "mm";
    if ((!plain && node.op->name != "addmm") || is_output_[node.results[0].index]) {
      return std::nullopt;
    }
    Product product{.node = n};
    if (!plain) {
      product.bias = std::get<ValueId>(node.args[0]);
      const auto is_one = [](const graph::Argument& a) {
        const auto* e = std::get_if<Expr>(&a);
        return e != nullptr && e->is_constant(1);
      };
      if (!is_parameter(product.bias, 1) || !is_one(node.args[3]) || !is_one(node.args[4])) {
        return std::nullopt;
      }
    }
    const ValueId right = std::get<ValueId>(node.args[plain ? 1 : 2]);
    if (producer_[right.index] < 0) return std::nullopt;
    const Node& transposed = graph_.nodes[static_cast<std::size_t>(producer_[right.index])];
    if (transposed.op->name != "t") return std::nullopt;
    product.weight = std::get<ValueId>(transposed.args[0]);
    product.columns = graph_.type(product.weight).sizes[0];
    if (!is_parameter(product.weight, 2) || !product.columns.is_constant()) return std::nullopt;
    const graph::Type& type = graph_.type(node.results[0]);
    const bool same = type.dtype == graph_.type(product.weight).dtype &&
                      (plain || (type.dtype == graph_.type(product.bias).dtype &&
                                 graph_.type(product.bias).sizes[0] == product.columns));
    return same ? std::optional(product) : std::nullopt;
  }

  // Whether the result, or views of it, feed an epilogue that the library may fuse.
  bool feeds_epilogue(std::size_t n) const {
    return std::any_of(users_[n].begin(), users_[n].end(), [&](std::size_t user) {
      const Node& node = graph_.nodes[user];
      if (has(node.op->traits, Trait::view)) return feeds_epilogue(user);
      return std::ranges::find(kEpilogues, node.op->name) != std::end(kEpilogues);
    });
  }

  static double columns_of(const std::vector<Product>& products) {
    double columns = 0;
    for (const Product& p : products) columns += static_cast<double>(*p.columns.constant());
    return columns;
  }

  double weight_bytes(ValueId operand, const std::vector<Product>& products) const {
    const graph::Type& x = graph_.type(operand);
    return static_cast<double>(sym::hint(x.sizes[1]).value_or(0)) * columns_of(products) *
           static_cast<double>(abi::size_of(x.dtype));
  }

  bool is_worth(ValueId operand, const std::vector<Product>& products) const {
    const graph::Type& x = graph_.type(operand);
    const double rows = static_cast<double>(sym::hint(x.sizes[0]).value_or(0));
    const double depth = static_cast<double>(sym::hint(x.sizes[1]).value_or(0));
    const double own = 2 * rows * depth * columns_of(products) / costs_.flops_per_second;
    return static_cast<double>(products.size() - 1) * costs_.call_seconds >= kLeastShare * own;
  }

  const Graph& graph_;
  const GemmCosts& costs_;
  std::vector<std::int32_t> producer_;
  std::vector<std::vector<std::size_t>> users_;  // nodes, by node
  std::vector<bool> is_parameter_, is_output_;
};

// One GEMM for a group, and the slices of its result.
std::vector<ValueId> merged(Rewriter& r, const std::vector<Product>& group, ValueId x) {
  Builder& b = r.builder();
  std::vector<ValueId> weights;
  std::vector<ValueId> biases;
  for (const Product& p : group) {
    weights.push_back(r.mapped(p.weight));
    if (!p.bias.is_none()) biases.push_back(r.mapped(p.bias));
  }
  const ValueId right = b.node("t", {b.node("cat", {weights, b.integer(0)})});
  const ValueId wide = biases.empty()
                           ? b.node("mm", {x, right})
                           : b.node("addmm", {b.node("cat", {biases, b.integer(0)}), x, right});
  std::vector<ValueId> parts;
  Expr start = b.integer(0);
  for (const Product& p : group) {
    const Expr end = start + p.columns;
    parts.push_back(b.node("slice", {wide, b.integer(1), start, end}));
    start = end;
  }
  return parts;
}

}  // namespace

std::optional<Graph> fuse_gemms(const Graph& graph, PassContext& context) {
  if (!context.options.gemm_costs) return std::nullopt;
  const auto groups = Finder(graph, *context.options.gemm_costs).run();
  if (groups.empty()) return std::nullopt;
  struct Position {
    std::size_t group, member;
  };
  std::map<ValueId, Position> positions;  // by result
  for (std::size_t g = 0; g < groups.size(); ++g) {
    for (std::size_t m = 0; m < groups[g].size(); ++m) {
      positions[graph.nodes[groups[g][m].node].results[0]] = {g, m};
    }
  }
  std::vector<std::vector<ValueId>> parts(groups.size());
  Rewriter rewriter(graph, graph.name);
  return std::move(rewriter).run([&](Rewriter& r, const Node& mapped,
                                     const Node& original) -> std::optional<std::vector<ValueId>> {
    const auto at =
        original.results.empty() ? positions.end() : positions.find(original.results[0]);
    if (at == positions.end()) return std::nullopt;
    auto& made = parts[at->second.group];
    if (made.empty()) made = merged(r, groups[at->second.group], Finder::left(mapped));
    return std::vector<ValueId>{made[at->second.member]};
  });
}

}  // namespace inkle::passes
