#include "passes/element.h"

#include <algorithm>

#include "graph/builder.h"
#include "loop/builder.h"
#include "passes/decompose.h"

namespace inkle::passes {
namespace {

using graph::Expr;
using graph::Graph;
using graph::has;
using graph::Node;
using graph::Trait;
using graph::ValueId;
using loop::BodyBuilder;
using loop::BufferId;
using loop::Instruction;
using loop::Nest;
using loop::Opcode;
using loop::Val;

// Masks are made of about twenty nodes.
constexpr std::size_t kMaxNodes = 64;
// Inlining repeats what is read several times; beyond this the answer is "not known".
constexpr std::size_t kMaxInstructions = 2000;

// What it lowers to may be loops over elements; of() looks at those.
bool may_be_elementwise(const Node& node) {
  constexpr Trait kBad = Trait::random | Trait::effect | Trait::eager_only | Trait::reduction |
                         Trait::contraction | Trait::update;
  return node.op->lower != nullptr && !has(node.op->traits, kBad);
}

// The nodes that `value` depends on as a graph of its own, composites expanded; values keep their
// numbers' meaning through the one output. nullopt if one of them is not elementwise.
std::optional<Graph> slice(const Graph& graph, ValueId value) {
  Graph part = graph;
  part.nodes.clear();
  part.outputs = {{value}};
  std::vector<bool> live(graph.value_count(), false);
  live[value.index] = true;
  for (std::size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    if (!std::ranges::any_of(node.results, [&](ValueId v) { return live[v.index]; })) continue;
    if (node.op->decompose == nullptr && !may_be_elementwise(node)) return std::nullopt;
    if (part.nodes.size() >= kMaxNodes) return std::nullopt;
    graph::for_each_operand(node, [&](ValueId v) { live[v.index] = true; });
    part.nodes.push_back(node);
  }
  std::ranges::reverse(part.nodes);
  std::erase_if(part.constants, [&](const auto& c) { return !live[c.first.index]; });
  PassContext context;
  if (auto expanded = decompose(part, context)) part = std::move(*expanded);
  if (!std::ranges::all_of(part.nodes, may_be_elementwise)) return std::nullopt;
  return part;
}

void add_leaf(const Graph& graph, ops::LoweringState& state, ValueId v) {
  const graph::Type& type = graph.type(v);
  ops::Tensor tensor{.dtype = type.dtype, .device = type.device, .sizes = type.sizes};
  tensor.buffer = state.program->add_buffer({.role = loop::BufferRole::input,
                                             .dtype = type.dtype,
                                             .device = type.device,
                                             .sizes = type.sizes,
                                             .strides = type.strides});
  state.values[v.index] = std::move(tensor);
}

// One element as instructions of `body`, reads of buffers replaced by what fills them.
class ElementInliner {
 public:
  ElementInliner(const loop::Program& program, const std::vector<std::int32_t>& writer)
      : program_(program), writer_(writer) {}

  Val read(BodyBuilder& to, Instruction load) {
    const std::int32_t writer = writer_[load.buffer];
    if (writer < 0 || load.operand_count != 0) return to.append(std::move(load));
    const Nest& nest = program_.nests[static_cast<std::size_t>(writer)];
    if (to.body().instructions.size() > kMaxInstructions) return to.append(std::move(load));
    if (nest.kind == loop::NestKind::scan) {
      const auto sum = sum_of_zeros(to, nest, load);
      return sum ? *sum : to.append(std::move(load));
    }
    std::vector<std::pair<Expr, Expr>> indices;
    for (std::size_t d = 0; d < nest.dims.size(); ++d) {
      indices.emplace_back(nest.dims[d].variable, load.indices[d]);
    }
    return element(to, nest, indices);
  }

 private:
  using Map = std::vector<std::pair<Expr, Expr>>;

  Val element(BodyBuilder& to, const Nest& nest, const Map& indices) {
    const loop::LoadRewrite again = [this](BodyBuilder& b, Instruction inner) {
      return read(b, std::move(inner));
    };
    return loop::inline_body(nest.body, indices, to, again).front();
  }

  // A cumulative sum whose terms are 0 at the first index and at all later ones (models number
  // packed sequences by a cumulative sum of where positions do not increase by one).
  std::optional<Val> sum_of_zeros(BodyBuilder& to, const Nest& nest, const Instruction& load) {
    const loop::Dim& along = nest.reduced.front();
    Map indices;
    const auto& stored = nest.stores.front().indices;
    for (std::size_t d = 0; d < stored.size(); ++d) {
      if (!(stored[d] == along.variable)) indices.emplace_back(stored[d], load.indices[d]);
    }
    sym::Context& context = to.context();
    const Expr first = context.constant(0);
    const Expr later = context.index(along.extent) + 1;
    std::optional<Val> zero;
    for (const Expr place : {first, later}) {
      Map at = indices;
      at.emplace_back(along.variable, place);
      zero = element(to, nest, at);
      const Instruction& i = to.body()[*zero];
      if (i.opcode != Opcode::constant || i.integer != 0 || i.real != 0) return std::nullopt;
    }
    return zero;
  }

  const loop::Program& program_;
  const std::vector<std::int32_t>& writer_;
};

// A nest that fills each element of its buffer once, in the order of its dims; or a running sum
// that does, in any order.
bool is_plain(const Nest& nest) {
  if (nest.stores.size() != 1) return false;
  const auto& indices = nest.stores.front().indices;
  if (nest.kind == loop::NestKind::pointwise) {
    return std::ranges::equal(indices, nest.dims, {}, {}, &loop::Dim::variable);
  }
  const auto is_variable = [&](Expr e) {
    const auto same = [&](const loop::Dim& dim) { return dim.variable == e; };
    return std::ranges::any_of(nest.dims, same) || std::ranges::any_of(nest.reduced, same);
  };
  return nest.kind == loop::NestKind::scan && nest.reduce == loop::ReduceOp::sum &&
         nest.reduced.size() == 1 && std::ranges::all_of(indices, is_variable);
}

}  // namespace

std::optional<Elements> Elements::of(const Graph& graph, ValueId value) {
  const auto part = slice(graph, value);
  if (!part) return std::nullopt;
  Elements out;
  out.context_ = graph.shared_context();
  out.program_ = std::make_shared<loop::Program>();
  out.program_->context = out.context_;
  ops::LoweringState state{.graph = &*part, .program = out.program_.get()};
  state.values.resize(part->value_count());
  for (const graph::Input& input : part->inputs) {
    if (!input.value.is_none()) add_leaf(*part, state, input.value);
  }
  for (const auto& constant : part->constants) add_leaf(*part, state, constant.first);
  for (const Node& node : part->nodes) {
    if (node.op->lower == nullptr) return std::nullopt;
    ops::Lowering lowering(state, node);
    node.op->lower(lowering);
  }
  out.tensor_ = state.values[std::get<ValueId>(part->outputs.front().value).index];
  out.writer_.assign(out.program_->buffers.size(), -1);
  for (std::size_t i = 0; i < out.program_->nests.size(); ++i) {
    const Nest& nest = out.program_->nests[i];
    if (!is_plain(nest)) return std::nullopt;
    out.writer_[nest.stores.front().buffer] = static_cast<std::int32_t>(i);
  }
  return out;
}

std::optional<double> Elements::constant_at(const std::vector<Expr>& indices) const {
  loop::Body body;
  BodyBuilder builder(body, *context_);
  ElementInliner inliner(*program_, writer_);
  Instruction load{.opcode = Opcode::load, .dtype = tensor_->dtype, .buffer = tensor_->buffer};
  load.indices = tensor_->buffer_indices(indices);
  const Instruction& result = body[inliner.read(builder, std::move(load))];
  if (result.opcode != Opcode::constant) return std::nullopt;
  if (abi::is_float(result.dtype)) return result.real;
  return static_cast<double>(result.integer);
}

}  // namespace inkle::passes
