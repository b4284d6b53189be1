#include "passes/conditions.h"

#include "base/error.h"

namespace inkle::passes {

using abi::DType;
using graph::Argument;
using graph::Expr;
using graph::Type;

namespace {

// Whether the operands of a node fit, and give the types that its results have.
bool has_given_types(const graph::Graph& graph, const graph::Node& node) {
  std::vector<Type> types;
  try {
    types = graph::infer_types(graph, *node.op, node.args);
  } catch (const Error&) {
    return false;
  }
  for (std::size_t i = 0; i < types.size(); ++i) {
    const Type& given = graph.type(node.results[i]);
    if (!graph::result_difference(*node.op, types[i], given).empty()) return false;
  }
  return true;
}

// Whether what reads `from` has the same types where it reads `to`. The two may have the same sizes
// by a guard, which says nothing of expressions in them.
bool reads_alike(const graph::Graph& graph, graph::ValueId from, graph::ValueId to) {
  for (const graph::Node& node : graph.nodes) {
    bool reads = false;
    graph::for_each_operand(node, [&](graph::ValueId v) { reads = reads || v == from; });
    if (!reads || node.op->infer == nullptr) continue;
    graph::Node other = node;
    graph::replace_operands(other, [&](graph::ValueId v) { return v == from ? to : v; });
    if (!has_given_types(graph, other)) return false;
  }
  return true;
}

}  // namespace

bool same_type(Match& match) {
  Type x = match.type("x");
  x.strides.reset();
  const Type& root = match.root_type();
  if (!graph::type_difference(x, root).empty()) return false;
  return x.sizes == root.sizes || reads_alike(match.graph(), match.root(), match.value("x"));
}

bool holds_exactly(DType to, DType from) {
  if (to == from) return true;
  if (!abi::is_computable(to) || !abi::is_computable(from) || to == DType::boolean) return false;
  switch (from) {
    case DType::boolean:
      return true;
    // 8 bits fit the 8 of bf16 and the 11 of f16.
    case DType::u8:
      return to != DType::i8;
    case DType::i8:
      return to != DType::u8;
    case DType::i16:
      return to == DType::i32 || to == DType::i64 || to == DType::f32 || to == DType::f64;
    case DType::i32:
      return to == DType::i64 || to == DType::f64;
    case DType::f16:
    case DType::bf16:
      return to == DType::f32 || to == DType::f64;
    case DType::f32:
      return to == DType::f64;
    default:
      return false;
  }
}

std::optional<std::int64_t> constant_integer(const Argument* argument) {
  const auto* e = argument == nullptr ? nullptr : std::get_if<Expr>(argument);
  return e == nullptr ? std::nullopt : e->constant();
}

std::optional<std::size_t> dimension(const Argument* argument, std::size_t rank) {
  const auto d = constant_integer(argument);
  const auto count = static_cast<std::int64_t>(rank);
  if (!d || *d < -count || *d >= count) return std::nullopt;
  return static_cast<std::size_t>(*d < 0 ? *d + count : *d);
}

}  // namespace inkle::passes
