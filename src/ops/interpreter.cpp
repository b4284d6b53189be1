// Runs a graph node by node on reference tensors.
#include "ops/interpreter.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/error.h"
#include "graph/builder.h"
#include "graph/inference.h"
#include "ops/elementwise.h"

namespace inkle::ops {

using graph::Argument;
using graph::Graph;
using graph::Node;
using graph::ValueId;
using Values = std::vector<std::optional<RefTensor>>;

namespace {

std::int64_t evaluate_with(sym::Expr e, const SymbolValues& symbols) {
  return sym::evaluate(e, [&](sym::Expr symbol) -> std::int64_t {
    for (const auto& [name, value] : symbols) {
      if (name == symbol) return value;
    }
    user_error("no value for symbol {}", symbol.name());
  });
}

std::vector<std::int64_t> evaluate_sizes(const graph::Sizes& sizes, const SymbolValues& symbols) {
  std::vector<std::int64_t> result;
  for (sym::Expr e : sizes) result.push_back(evaluate_with(e, symbols));
  return result;
}

}  // namespace

Evaluation::Evaluation(const Graph& graph, const Node& node, const Values& values,
                       const SymbolValues& symbols)
    : graph_(graph), node_(node), values_(values), symbols_(symbols) {
  for (ValueId v : node.results) {
    const graph::Type& type = graph.type(v);
    results_.emplace_back(type.dtype, evaluate_sizes(type.sizes, symbols));
  }
}

bool Evaluation::is_none(std::size_t arg) const {
  return std::holds_alternative<graph::None>(node_.args[arg]);
}

bool Evaluation::is_tensor(std::size_t arg) const {
  return std::holds_alternative<ValueId>(node_.args[arg]);
}

const RefTensor& Evaluation::tensor(std::size_t arg) const {
  const auto& value = values_[std::get<ValueId>(node_.args[arg]).index];
  INKLE_CHECK(value.has_value(), "operand {} of {} has no value", arg, node_.op->name);
  return *value;
}

const RefTensor* Evaluation::optional_tensor(std::size_t arg) const {
  return is_none(arg) ? nullptr : &tensor(arg);
}

std::vector<const RefTensor*> Evaluation::tensors(std::size_t arg) const {
  std::vector<const RefTensor*> result;
  if (is_none(arg)) return result;
  for (ValueId v : std::get<std::vector<ValueId>>(node_.args[arg])) {
    result.push_back(v.is_none() ? nullptr : &*values_[v.index]);
  }
  return result;
}

RefTensor Evaluation::operand(std::size_t arg) const {
  if (is_tensor(arg)) return tensor(arg);
  const Argument& a = node_.args[arg];
  if (const auto* d = std::get_if<double>(&a)) {
    RefTensor t(DType::f64, {});
    t.set(0, *d);
    return t;
  }
  RefTensor t(std::holds_alternative<bool>(a) ? DType::boolean : DType::i64, {});
  t.set(0, std::holds_alternative<bool>(a) ? std::int64_t{std::get<bool>(a)} : integer(arg));
  return t;
}

std::int64_t Evaluation::integer(std::size_t arg) const {
  return evaluate(std::get<sym::Expr>(node_.args[arg]));
}

std::vector<std::int64_t> Evaluation::integers(std::size_t arg) const {
  if (is_none(arg)) return {};
  return evaluate_sizes(std::get<std::vector<sym::Expr>>(node_.args[arg]), symbols_);
}

std::int64_t Evaluation::whole(std::size_t arg) const {
  if (std::holds_alternative<sym::Expr>(node_.args[arg])) return integer(arg);
  return static_cast<std::int64_t>(real(arg));
}

double Evaluation::real(std::size_t arg) const {
  const Argument& a = node_.args[arg];
  if (const auto* d = std::get_if<double>(&a)) return *d;
  if (const auto* b = std::get_if<bool>(&a)) return *b ? 1 : 0;
  return static_cast<double>(integer(arg));
}

bool Evaluation::boolean(std::size_t arg) const { return std::get<bool>(node_.args[arg]); }

std::string_view Evaluation::string(std::size_t arg) const {
  return std::get<std::string>(node_.args[arg]);
}

std::size_t Evaluation::dim(std::int64_t d, std::size_t rank) const {
  return graph::Inference(graph_, *node_.op, node_.args).dim(d, rank);
}

std::int64_t Evaluation::evaluate(sym::Expr e) const { return evaluate_with(e, symbols_); }

const graph::Type& Evaluation::type(std::size_t arg) const {
  return graph_.type(std::get<ValueId>(node_.args[arg]));
}

DType evaluated_common(const Evaluation& e, std::initializer_list<std::size_t> operands, In in) {
  const graph::Inference args(e.graph(), *e.node().op, e.node().args);
  const DType common = common_dtype(args, operands);
  return in == In::as_float ? float_result(common) : common;
}

namespace {

void run_nodes(const Graph& graph, Values& values, const SymbolValues& symbols) {
  values.resize(graph.value_count());
  for (const Node& node : graph.nodes) {
    try {
      std::vector<RefTensor> results = interpret_node(graph, node, values, symbols);
      for (std::size_t i = 0; i < results.size(); ++i) {
        values[node.results[i].index] = std::move(results[i]);
      }
      if (graph::has(node.op->traits, graph::Trait::effect) && !node.args.empty() &&
          !node.results.empty() && std::holds_alternative<ValueId>(node.args[0])) {
        // Mutation of argument 0: the result is its new contents.
        values[std::get<ValueId>(node.args[0]).index] = values[node.results[0].index];
      }
    } catch (Error& error) {
      error.add_note(fmt::format("in op {}{}{}", node.op->name, node.source.empty() ? "" : " at ",
                                 node.source));
      throw;
    }
  }
}

// Replaces a node by its decomposition in a graph of its own and runs that.
std::vector<RefTensor> run_decomposition(const Graph& graph, const Node& node, const Values& values,
                                         const SymbolValues& symbols) {
  Graph inner(graph.shared_context(), graph.table());
  Values inner_values;
  Node mapped = node;
  mapped.results.clear();
  std::vector<std::pair<ValueId, ValueId>> known;
  replace_operands(mapped, [&](ValueId v) {
    for (const auto& [from, to] : known) {
      if (from == v) return to;
    }
    const ValueId made = inner.add_value(graph.type(v));
    inner.inputs.push_back({.name = fmt::format("a{}", known.size()), .value = made});
    inner_values.resize(inner.value_count());
    inner_values[made.index] = values[v.index];
    known.emplace_back(v, made);
    return made;
  });
  graph::Builder builder(inner);
  const std::vector<ValueId> results = node.op->decompose(builder, mapped);
  run_nodes(inner, inner_values, symbols);
  std::vector<RefTensor> tensors;
  for (ValueId v : results) tensors.push_back(*inner_values[v.index]);
  return tensors;
}

}  // namespace

std::vector<RefTensor> interpret_node(const Graph& graph, const Node& node, const Values& values,
                                      const SymbolValues& symbols) {
  if (node.op->reference == nullptr) {
    if (node.op->decompose == nullptr) unsupported("{} has no reference", node.op->name);
    return run_decomposition(graph, node, values, symbols);
  }
  Evaluation evaluation(graph, node, values, symbols);
  node.op->reference(evaluation);
  std::vector<RefTensor> results = evaluation.take_results();
  for (RefTensor& result : results) result.round();
  return results;
}

RefTensor viewed(const Graph& graph, const graph::Output& output, const RefTensor& whole,
                 const SymbolValues& symbols) {
  const bool is_argument = output.sharing == graph::Sharing::argument;
  const graph::Type& type =
      graph.type(is_argument ? output.argument : std::get<ValueId>(output.value));
  const std::vector<std::int64_t> strides = evaluate_sizes(type.strides.value(), symbols);
  const auto place = [](std::span<const std::int64_t> indices,
                        std::span<const std::int64_t> steps) {
    return std::inner_product(indices.begin(), indices.end(), steps.begin(), std::int64_t{0});
  };
  std::map<std::int64_t, std::size_t> positions;  // by offset from the first element
  for_each_index(whole.sizes, [&](auto indices, std::size_t position) {
    positions.emplace(place(indices, strides), position);
  });
  const std::vector<std::int64_t> steps = evaluate_sizes(output.view.strides.value(), symbols);
  const std::int64_t begin = evaluate_with(output.offset, symbols);
  RefTensor result(output.view.dtype, evaluate_sizes(output.view.sizes, symbols));
  for_each_index(result.sizes, [&](auto indices, std::size_t position) {
    const auto from = positions.find(begin + place(indices, steps));
    if (from == positions.end()) unsupported("an output that is a view of gaps in memory");
    result.copy_element(position, whole, from->second);
  });
  return result;
}

std::vector<InterpretedOutput> interpret(const Graph& graph, std::vector<RefTensor>& inputs,
                                         const SymbolValues& symbols) {
  Values values(graph.value_count());
  std::size_t next = 0;
  for (const graph::Input& input : graph.inputs) {
    if (input.value.is_none()) continue;
    if (next == inputs.size()) user_error("tensor {} is missing", input.name);
    const graph::Type& type = graph.type(input.value);
    if (inputs[next].dtype != type.dtype ||
        inputs[next].sizes != evaluate_sizes(type.sizes, symbols)) {
      user_error("tensor {} must be {}", input.name, to_string(type));
    }
    values[input.value.index] = inputs[next++];
  }
  for (const auto& [value, data] : graph.constants) {
    values[value.index] = from_bytes(data.dtype, data.sizes, *data.bytes);
  }
  run_nodes(graph, values, symbols);
  std::vector<InterpretedOutput> outputs;
  for (const graph::Output& output : graph.outputs) {
    InterpretedOutput& result = outputs.emplace_back();
    if (const auto* v = std::get_if<ValueId>(&output.value)) {
      const std::optional<RefTensor>& whole = values[v->index];
      INKLE_CHECK(whole.has_value(), "no node makes an output of {}", graph.name);
      result.tensor = output.is_view() ? viewed(graph, output, *whole, symbols) : whole;
    }
    if (const auto* e = std::get_if<sym::Expr>(&output.value)) {
      result.integer = evaluate_with(*e, symbols);
    }
  }
  next = 0;
  for (const graph::Input& input : graph.inputs) {
    if (!input.value.is_none()) inputs[next++] = std::move(*values[input.value.index]);
  }
  return outputs;
}

}  // namespace inkle::ops
