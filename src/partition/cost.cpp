#include "partition/cost.h"

#include "base/error.h"
#include "loop/program.h"
#include "ops/lowering.h"

namespace inkle::partition {
namespace {

using graph::Graph;
using graph::has;
using graph::Node;
using graph::Trait;
using graph::ValueId;
using loop::Nest;
using loop::NestKind;
using loop::Opcode;

// In additions of a vector: polynomials of 15 to 25 operations, a quarter of the ten rounds of
// Philox with two wide multiplications each, divisions at a quarter of the rate or less.
constexpr double kFunction = 20, kRandom = 15, kDivision = 8, kGather = 8;

double operations_of(const loop::Body& body) {
  double count = 0;
  for (const loop::Instruction& i : body.instructions) {
    switch (i.opcode) {
      case Opcode::constant:
      case Opcode::index:
      case Opcode::load:
      case Opcode::row:
        break;
      case Opcode::random:
        count += kRandom;
        break;
      case Opcode::indirect:
        count += kGather;
        break;
      case Opcode::div:
      case Opcode::floordiv:
      case Opcode::remainder:
      case Opcode::fmod:
      case Opcode::sqrt:
      case Opcode::rsqrt:
        count += kDivision;
        break;
      default:
        count += i.opcode > Opcode::rsqrt && i.opcode <= Opcode::hypot ? kFunction : 1;
    }
  }
  return count;
}

std::optional<double> points(const std::vector<loop::Dim>& dims) {
  double count = 1;
  for (const loop::Dim& dim : dims) {
    const auto extent = sym::hint(dim.extent);
    if (!extent) return std::nullopt;
    count *= static_cast<double>(*extent);
  }
  return count;
}

class Counter {
 public:
  explicit Counter(const Graph& graph) : graph_(graph) {
    program_.context = graph.shared_context();
    state_ = {.graph = &graph, .program = &program_};
    state_.values.resize(graph.value_count());
  }

  std::optional<Work> of(const Node& node) {
    constexpr Trait kNever =
        Trait::random | Trait::effect | Trait::eager_only | Trait::contraction | Trait::update;
    if (node.op->lower == nullptr || node.op->library || has(node.op->traits, kNever)) {
      return std::nullopt;
    }
    program_.nests.clear();
    program_.buffers.clear();
    graph::for_each_operand(node, [&](ValueId v) { add_leaf(v); });
    const bool is_lowered = lower(node);
    graph::for_each_operand(node, [&](ValueId v) { state_.values[v.index].reset(); });
    for (const ValueId v : node.results) state_.values[v.index].reset();
    if (!is_lowered) return std::nullopt;
    Work work;
    for (const Nest& nest : program_.nests) {
      if (!add(nest, work)) return std::nullopt;
    }
    return work;
  }

 private:
  // False where the row cannot be lowered: the reason is reported at compilation.
  bool lower(const Node& node) {
    try {
      ops::Lowering lowering(state_, node);
      node.op->lower(lowering);
      return true;
    } catch (const Unsupported&) {
      return false;
    }
  }

  void add_leaf(ValueId v) {
    const graph::Type& type = graph_.type(v);
    ops::Tensor tensor{.dtype = type.dtype, .device = type.device, .sizes = type.sizes};
    tensor.buffer = program_.add_buffer({.role = loop::BufferRole::input,
                                         .dtype = type.dtype,
                                         .device = type.device,
                                         .sizes = type.sizes,
                                         .strides = type.strides});
    state_.values[v.index] = std::move(tensor);
  }

  static bool add(const Nest& nest, Work& work) {
    const bool is_reduction = nest.kind == NestKind::reduction;
    if (nest.kind != NestKind::pointwise && !is_reduction) return false;
    const auto outer = points(nest.dims), inner = points(nest.reduced);
    if (!outer || !inner) return false;
    work.operations += *outer * *inner * (operations_of(nest.body) + (is_reduction ? 1 : 0));
    if (is_reduction) work.bytes += *outer * *inner * abi::size_of(nest.accumulator);
    return true;
  }

  const Graph& graph_;
  loop::Program program_;
  ops::LoweringState state_;
};

}  // namespace

std::vector<std::optional<Work>> recompute_work(const Graph& graph,
                                                const std::vector<bool>& wanted) {
  std::vector<std::optional<Work>> result(graph.nodes.size());
  Counter counter(graph);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    if (!wanted[i]) continue;
    if (has(graph.nodes[i].op->traits, Trait::view)) {
      result[i] = Work{};
    } else {
      result[i] = counter.of(graph.nodes[i]);
    }
  }
  return result;
}

std::int64_t bytes_of(const Graph& graph, ValueId value) {
  const graph::Type& type = graph.type(value);
  std::int64_t bytes = abi::size_of(type.dtype);
  for (const sym::Expr size : type.sizes) bytes *= sym::hint(size).value_or(1);
  return bytes;
}

}  // namespace inkle::partition
