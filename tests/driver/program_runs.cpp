// How a random program runs, disturbed or not, and how one that fails becomes small.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <ranges>

#include "base/error.h"
#include "driver/random_program.h"
#include "graph/builder.h"

namespace inkle::driver {
namespace {

using abi::DType;
using graph::Graph;
using graph::Trait;
using graph::Type;
using graph::ValueId;
using ops::RefTensor;
using Values = std::vector<std::optional<RefTensor>>;

// Units in the last place of the type a float is computed in.
double epsilon(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 0x1p-52;
    case DType::bf16:
      return 0x1p-8;
    case DType::f16:
      return 0x1p-11;
    default:
      return 0x1p-23;
  }
}

// With `flush`, what is small against the tensor's largest element may also be 0: differences that
// rounding has cancelled.
void disturb(RefTensor& t, std::mt19937& random, bool flush = false) {
  if (!t.is_real()) return;
  if (flush) {
    double largest = 0.5;
    for (std::size_t i = 0; i < t.count(); ++i) largest = std::max(largest, std::abs(t.real(i)));
    const double small = 8 * epsilon(t.dtype) * largest;
    for (std::size_t i = 0; i < t.count(); ++i) {
      if (std::abs(t.real(i)) < small) t.set(i, 0.0);
    }
  }
  std::uniform_real_distribution<double> unit(-1, 1);
  for (std::size_t i = 0; i < t.count(); ++i) {
    t.set(i, t.real(i) * (1 + 2 * unit(random) * epsilon(t.dtype)));
  }
}

// gelu's derivative is a sum of terms of about 1, times the gradient: near its zeros, and far out,
// they cancel, and what is left is their rounding, of which noise in its operands shows little.
void disturb_terms(const graph::Node& node, const Values& values, RefTensor& result,
                   std::mt19937& random) {
  if (node.op->name != "gelu_backward") return;
  const RefTensor& gradient = *values[std::get<ValueId>(node.args[0]).index];
  std::uniform_real_distribution<double> unit(-1, 1);
  for (std::size_t i = 0; i < result.count() && result.count() == gradient.count(); ++i) {
    const double term = std::abs(gradient.real(i)) * epsilon(result.dtype);
    result.set(i, result.real(i) + 2 * unit(random) * term);
  }
}

// All values of a run; noise as evaluate() says.
Values run(const Program& program, std::vector<RefTensor>& inputs,
           std::optional<std::uint32_t> noise) {
  std::mt19937 random(noise.value_or(0));
  const Graph& graph = program.graph;
  Values values(graph.value_count());
  std::size_t next = 0;
  for (const graph::Input& input : graph.inputs) {
    if (input.value.is_none()) continue;
    RefTensor& t = inputs[next++];
    if (noise) disturb(t, random);
    values[input.value.index] = t;
  }
  for (const graph::Node& node : graph.nodes) {
    const bool moves = has(node.op->traits, Trait::view) || has(node.op->traits, Trait::effect);
    // Operands too, so that elements that are equal by a view are not equal to an op: what it makes
    // of their difference is rounding.
    std::vector<std::pair<ValueId, RefTensor>> undisturbed;
    if (noise && !moves) {
      graph::for_each_operand(node, [&](ValueId v) {
        if (!values[v.index] || !values[v.index]->is_real()) return;
        undisturbed.emplace_back(v, *values[v.index]);
        disturb(*values[v.index], random);
      });
    }
    auto results = ops::interpret_node(graph, node, values, program.symbols);
    for (auto at = undisturbed.rbegin(); at != undisturbed.rend(); ++at) {
      values[at->first.index] = std::move(at->second);
    }
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (noise) disturb_terms(node, values, results[i], random);
      if (noise && !moves) disturb(results[i], random, *noise % 2 == 0);
      values[node.results[i].index] = std::move(results[i]);
    }
    if (has(node.op->traits, Trait::effect)) {
      values[std::get<ValueId>(node.args[0]).index] = values[node.results[0].index];
    }
  }
  return values;
}

// Without nodes and inputs that no output or effect needs.
Program pruned(Program program) {
  Graph& graph = program.graph;
  std::vector<bool> needed = graph::output_values(graph);
  std::vector<graph::Node> kept;
  for (std::size_t n = graph.nodes.size(); n-- > 0;) {
    graph::Node& node = graph.nodes[n];
    bool used = has(node.op->traits, Trait::effect);
    for (const ValueId v : node.results) used = used || needed[v.index];
    if (!used) continue;
    graph::for_each_operand(node, [&](ValueId v) { needed[v.index] = true; });
    kept.push_back(std::move(node));
  }
  graph.nodes.assign(std::make_move_iterator(kept.rbegin()), std::make_move_iterator(kept.rend()));
  std::vector<graph::Input> inputs;
  std::vector<RefTensor> tensors;
  std::size_t next = 0;
  for (graph::Input& input : graph.inputs) {
    const bool tensor = !input.value.is_none();
    if (!tensor || needed[input.value.index]) {
      if (tensor) tensors.push_back(program.inputs[next]);
      inputs.push_back(std::move(input));
    }
    if (tensor) ++next;
  }
  graph.inputs = std::move(inputs);
  program.inputs = std::move(tensors);
  return program;
}

// Without effect n: what its operand held stands for what it would hold.
Program without_effect(Program program, std::size_t n) {
  Graph& graph = program.graph;
  const ValueId made = graph.nodes[n].results.front();
  const ValueId held = std::get<ValueId>(graph.nodes[n].args.front());
  const auto standing = [&](ValueId v) { return v == made ? held : v; };
  graph.nodes.erase(graph.nodes.begin() + static_cast<std::ptrdiff_t>(n));
  for (graph::Node& node : graph.nodes) graph::replace_operands(node, standing);
  for (graph::Output& output : graph.outputs) {
    if (auto* v = std::get_if<ValueId>(&output.value)) *v = standing(*v);
  }
  return program;
}

// Node n's results as inputs of the values that they have.
Program cut(const Program& program, std::size_t n) {
  Program smaller = program;
  std::vector<RefTensor> inputs = program.inputs;
  const Values values = run(program, inputs, std::nullopt);
  Graph& graph = smaller.graph;
  const graph::Node node = graph.nodes[n];
  graph.nodes.erase(graph.nodes.begin() + static_cast<std::ptrdiff_t>(n));
  for (const ValueId v : node.results) {
    Type& type = graph.type(v);
    type.strides = graph::contiguous_strides(graph.context(), type.sizes);
    graph.inputs.push_back({.name = fmt::format("cut{}", v.index), .value = v});
    smaller.inputs.push_back(*values[v.index]);
  }
  return smaller;
}

}  // namespace

std::optional<Program> at_later_values(const Program& program) {
  if (program.later.empty()) return std::nullopt;
  Program other = program;
  const auto value_of = [&](sym::Expr symbol) {
    const auto found = std::ranges::find(other.symbols, symbol, [](auto& s) { return s.first; });
    return found->second;
  };
  for (auto& [symbol, value] : other.symbols) {
    for (const auto& [changed, later] : program.later) {
      if (symbol == changed) value = later;
    }
  }
  std::size_t next = 0;
  for (const graph::Input& input : program.graph.inputs) {
    if (input.value.is_none()) continue;
    const RefTensor& t = program.inputs[next++];
    const graph::Sizes& sizes = program.graph.type(input.value).sizes;
    for (std::size_t d = 0; d < sizes.size(); ++d) {
      if (sym::evaluate(sizes[d], value_of) != t.sizes[d]) return std::nullopt;
    }
  }
  return other;
}

std::vector<RefTensor> evaluate(const Program& program, std::optional<std::uint32_t> noise) {
  std::vector<RefTensor> inputs = program.inputs;
  const Values values = run(program, inputs, noise);
  std::vector<RefTensor> results;
  for (const graph::Output& output : program.graph.outputs) {
    const auto& made = values[std::get<ValueId>(output.value).index];
    INKLE_CHECK(made.has_value(), "no node makes an output of {}", program.graph.name);
    const RefTensor& value = *made;
    results.push_back(output.is_view() ? ops::viewed(program.graph, output, value, program.symbols)
                                       : value);
  }
  for (const graph::Input& input : program.graph.inputs) {
    if (!input.value.is_none()) results.push_back(*values[input.value.index]);
  }
  return results;
}

Program reduce(Program program, const std::function<bool(const Program&)>& fails) {
  const auto keep = [&](Program candidate) {
    candidate = pruned(std::move(candidate));
    if (!fails(candidate)) return false;
    program = std::move(candidate);
    return true;
  };
  (void)keep(program);
  for (bool smaller = true; smaller;) {
    smaller = false;
    for (std::size_t i = program.graph.outputs.size(); i-- > 0;) {
      if (program.graph.outputs.size() == 1) break;
      Program candidate = program;
      candidate.graph.outputs.erase(candidate.graph.outputs.begin() +
                                    static_cast<std::ptrdiff_t>(i));
      smaller = keep(std::move(candidate)) || smaller;
    }
    for (std::size_t n = program.graph.nodes.size(); n-- > 0;) {
      if (n >= program.graph.nodes.size()) continue;
      const graph::Node& node = program.graph.nodes[n];
      if (has(node.op->traits, Trait::effect)) {
        smaller = keep(without_effect(program, n)) || smaller;
        continue;
      }
      // An output node stays; another becomes an input, which is smaller if something goes.
      const auto is_output = graph::output_values(program.graph);
      if (std::ranges::any_of(node.results, [&](ValueId v) { return is_output[v.index]; }))
        continue;
      smaller = keep(cut(program, n)) || smaller;
    }
  }
  return program;
}

}  // namespace inkle::driver
