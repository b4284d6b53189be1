#include "passes/canonicalise.h"

#include <algorithm>

#include "passes/conditions.h"

namespace inkle::passes {
namespace {

using abi::DType;
using graph::Argument;
using graph::Expr;
using graph::Graph;
using graph::Type;

bool same_integer(Match& m) { return !abi::is_float(m.root_type().dtype) && same_type(m); }

bool identity_permutation(Match& m) {
  const auto& dims = std::get<std::vector<Expr>>(*m.find("dims"));
  for (std::size_t i = 0; i < dims.size(); ++i) {
    const Argument d = dims[i];
    if (dimension(&d, dims.size()) != i) return false;
  }
  return true;
}

bool one_dimension(Match& m) {
  const std::size_t rank = m.type("x").rank();
  return rank == 0 || (dimension(m.find("a"), rank) &&
                       dimension(m.find("a"), rank) == dimension(m.find("b"), rank));
}

bool same_pair(Match& m) {
  const std::size_t rank = m.type("x").rank();
  const auto a = dimension(m.find("a"), rank), b = dimension(m.find("b"), rank);
  const auto c = dimension(m.find("c"), rank), d = dimension(m.find("d"), rank);
  return a && b && c && d && std::minmax(*a, *b) == std::minmax(*c, *d);
}

// permute(permute(x, inner), outer) is one permutation, bound as "both".
bool joined_permutation(Match& m) {
  const auto& inner = std::get<std::vector<Expr>>(*m.find("inner"));
  const auto& outer = std::get<std::vector<Expr>>(*m.find("outer"));
  std::vector<Expr> both;
  for (const Expr e : outer) {
    const Argument d = e;
    const auto at = dimension(&d, inner.size());
    if (!at) return false;
    both.push_back(inner[*at]);
  }
  m.bind("both", std::move(both));
  return true;
}

// The inner cast loses nothing and stays on its device, so the outer one may start from x.
bool inner_cast_exact(Match& m) {
  const Type& x = m.type("x");
  const Type& y = m.type("y");
  if (!holds_exactly(y.dtype, x.dtype)) return false;
  if (x.device != y.device || x.device != m.root_type().device) return false;
  m.bind("dtype", m.root_type().dtype);
  return true;
}

// Reshapes, whatever their name, of a reshape.
bool bind_sizes(Match& m) {
  m.bind("sizes", m.root_type().sizes);
  return true;
}

// Of an op that takes nothing of its operand but sizes, dtype and device; strides are kept.
bool bind_type(Match& m) {
  const Type& root = m.root_type();
  m.bind("sizes", root.sizes);
  m.bind("dtype", root.dtype);
  m.bind("device", root.device == graph::Device{} ? Argument(graph::None{}) : root.device);
  return true;
}

constexpr Definition kDefinitions[] = {
    {"reshaped", "view/_unsafe_view/reshape/flatten/squeeze/squeeze_dims/unsqueeze(x, ...)"},
};

constexpr Rule kRules[] = {
    // Arithmetic identities. 0 added to a float turns -0.0 to 0.0: integers only.
    {.name = "add 0", .match = "add(x, 0, ...)", .give = "x", .condition = same_integer},
    {.name = "subtract 0", .match = "sub(x, 0)", .give = "x", .condition = same_type},
    {.name = "times 1", .match = "mul(x, 1)", .give = "x", .condition = same_type},
    {.name = "over 1", .match = "div(x, 1)", .give = "x", .condition = same_type},
    {.name = "power 1", .match = "pow(x, 1)", .give = "x", .condition = same_type},
    {.name = "negated twice", .match = "neg(neg(x))", .give = "x"},
    {.name = "not twice",
     .match = "bitwise_not/logical_not(bitwise_not/logical_not(x))",
     .give = "x",
     .condition = [](Match& m) { return m.type("x").dtype == DType::boolean; }},
    {.name = "abs twice", .match = "abs(abs(x))", .give = "abs(x)"},
    {.name = "relu twice", .match = "relu(relu(x))", .give = "relu(x)"},
    {.name = "where of one", .match = "where(_, x, x)", .give = "x", .condition = same_type},
    {.name = "and true",
     .match = "bitwise_and/logical_and(x, true)",
     .give = "x",
     .condition = [](Match& m) { return m.type("x").dtype == DType::boolean && same_type(m); }},
    {.name = "or false",
     .match = "bitwise_or/logical_or(x, false)",
     .give = "x",
     .condition = [](Match& m) { return m.type("x").dtype == DType::boolean && same_type(m); }},

    // Copies and casts.
    {.name = "same tensor",
     .match = "alias/detach/lift_fresh_copy/clone(x, ...)",
     .give = "x",
     .condition = same_type},
    {.name = "cast to the same",
     .match = "_to_copy/to_dtype(x, ...)",
     .give = "x",
     .condition = same_type},
    {.name = "cast of an exact cast",
     .match = "_to_copy(y: _to_copy(x, ...), ...)",
     .give = "_to_copy(x, dtype)",
     .condition = inner_cast_exact},

    // Ops that read only the sizes of their operand do not keep its computation live.
    {.name = "zeros of its sizes",
     .match = "zeros_like/zero(x, ...)",
     .give = "full(sizes, 0, dtype, none, device)",
     .condition = bind_type},
    {.name = "ones of its sizes",
     .match = "ones_like(x, ...)",
     .give = "full(sizes, 1, dtype, none, device)",
     .condition = bind_type},
    {.name = "a number in its sizes",
     .match = "full_like(x, number, ...)",
     .give = "full(sizes, number, dtype, none, device)",
     .condition = bind_type},

    // Views that change nothing, and views of views.
    {.name = "same sizes",
     .match = "view/_unsafe_view/reshape/flatten/expand/squeeze/squeeze_dims/slice(x, ...)",
     .give = "x",
     .condition = same_type},
    {.name = "identity permute",
     .match = "permute(x, dims)",
     .give = "x",
     .condition = identity_permutation},
    {.name = "swap with itself",
     .match = "transpose(x, a, b)",
     .give = "x",
     .condition = one_dimension},
    {.name = "t of rank 1",
     .match = "t(x)",
     .give = "x",
     .condition = [](Match& m) { return m.type("x").rank() < 2; }},
    {.name = "t twice", .match = "t(t(x))", .give = "x"},
    {.name = "swapped twice",
     .match = "transpose(transpose(x, a, b), c, d)",
     .give = "x",
     .condition = same_pair},
    {.name = "permuted twice",
     .match = "permute(permute(x, inner), outer)",
     .give = "permute(x, both)",
     .condition = joined_permutation},
    {.name = "reshaped twice",
     .match = "view/_unsafe_view/reshape/flatten($reshaped, ...)",
     .give = "reshape(x, sizes)",
     .condition = bind_sizes},
    {.name = "expanded twice",
     .match = "expand(expand(x, ...), sizes, ...)",
     .give = "expand(x, sizes)",
     .condition =
         [](Match& m) {
           m.bind("sizes", m.root_type().sizes);
           return true;
         }},
};

}  // namespace

RuleSet canonical_rules(const graph::OpTable& table) { return {kRules, kDefinitions, table}; }

std::optional<Graph> canonicalise(const Graph& graph, PassContext&) {
  return apply_rules(graph, canonical_rules(graph.table()));
}

}  // namespace inkle::passes
