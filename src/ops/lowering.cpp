#include "ops/lowering.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "ops/infer.h"

namespace inkle::ops {
namespace {

using graph::Type;
using graph::ValueId;
using loop::Buffer;
using loop::BufferId;
using loop::BufferRole;
using loop::Dim;
using loop::Instruction;
using loop::Nest;
using loop::NestKind;
using loop::ReduceOp;

std::vector<Dim> make_dims(sym::Context& context, const Sizes& sizes) {
  std::vector<Dim> dims;
  dims.reserve(sizes.size());
  for (const Expr size : sizes) dims.push_back({context.index(size), size});
  return dims;
}

std::vector<Expr> variables(const std::vector<Dim>& dims) {
  std::vector<Expr> list;
  list.reserve(dims.size());
  for (const Dim& dim : dims) list.push_back(dim.variable);
  return list;
}

bool is_zero(Expr index) { return sym::bounds(index) == sym::Range{0, 0}; }

bool same_sizes(const Sizes& a, const Sizes& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](Expr x, Expr y) { return x == y || sym::equal(x, y).value_or(false); });
}

std::string describe(DType dtype, const Sizes& sizes) {
  return graph::to_string(Type{.dtype = dtype, .sizes = sizes});
}

void require_computable(DType dtype) {
  if (!abi::is_computable(dtype)) unsupported("no code is generated for {}", abi::name_of(dtype));
}

bool same_strides(const Sizes& sizes, const Sizes& a, const Sizes& b) {
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (!sizes[d].is_constant(1) && !(a[d] == b[d])) return false;
  }
  return true;
}

bool loads_from(const loop::Body& body, BufferId buffer,
                const std::vector<Expr>* except = nullptr) {
  return std::any_of(body.instructions.begin(), body.instructions.end(), [&](const Instruction& i) {
    return i.opcode == Opcode::load && i.buffer == buffer &&
           (except == nullptr || i.indices != *except);
  });
}

// Stores every element where it was loaded from.
bool keeps_everything(const Nest& nest) {
  const Instruction& value = nest.body[nest.body.yields[0]];
  return value.opcode == Opcode::load && value.operand_count == 0 &&
         value.buffer == nest.stores[0].buffer && value.indices == nest.stores[0].indices;
}

}  // namespace

bool is_one(Expr size) {
  if (size.is_constant()) return size.is_constant(1);
  return sym::equal(size, size.context().constant(1)).value_or(false);
}

bool is_whole(const Tensor& t, const loop::Program& program) {
  const Buffer& buffer = program.buffers[t.buffer];
  if (!same_sizes(t.sizes, buffer.sizes)) return false;
  if (!t.map) return true;
  const std::vector<Expr> indices = variables(make_dims(*program.context, t.sizes));
  const std::vector<Expr> mapped = t.map(indices);
  for (std::size_t d = 0; d < indices.size(); ++d) {
    if (!(mapped[d] == indices[d]) && !(is_zero(mapped[d]) && is_zero(indices[d]))) return false;
  }
  return true;
}

Lowering::Lowering(LoweringState& state, const graph::Node& node)
    : state_(state), node_(node), args_(*state.graph, *node.op, node.args) {}

// --- The node -----------------------------------------------------------------------------------

sym::Context& Lowering::context() const { return state_.graph->context(); }

const Tensor& Lowering::tensor(std::size_t arg) const {
  const auto* value = std::get_if<ValueId>(&node_.args[arg]);
  INKLE_CHECK(value != nullptr && !value->is_none(), "{}: argument {} is no tensor", node_.op->name,
              arg);
  const auto& t = state_.values[value->index];
  INKLE_CHECK(t.has_value(), "{}: argument {} is not lowered", node_.op->name, arg);
  return *t;
}

const Tensor* Lowering::optional_tensor(std::size_t arg) const {
  const auto* value = std::get_if<ValueId>(&node_.args[arg]);
  return value == nullptr || value->is_none() ? nullptr : &tensor(arg);
}

std::vector<const Tensor*> Lowering::tensors(std::size_t arg) const {
  std::vector<const Tensor*> list;
  const auto* values = std::get_if<std::vector<ValueId>>(&node_.args[arg]);
  if (values == nullptr) return list;
  for (const ValueId v : *values) {
    list.push_back(v.is_none() ? nullptr : &state_.values[v.index].value());
  }
  return list;
}

const graph::Type& Lowering::result_type(std::size_t i) const {
  INKLE_CHECK(i < node_.results.size(), "{} has no result {}", node_.op->name, i);
  return state_.graph->type(node_.results[i]);
}

bool Lowering::is_used(std::size_t result) const {
  if (result >= node_.results.size()) return false;
  const ValueId v = node_.results[result];
  return state_.remaining.empty() || state_.remaining[v.index] > 0;
}

// --- Inside a body ------------------------------------------------------------------------------

Val Lowering::element(BodyBuilder& b, std::size_t arg, Indices i, DType scalar_as) const {
  const graph::Argument& a = node_.args[arg];
  if (const auto* e = std::get_if<Expr>(&a)) {
    if (const auto value = e->constant()) return b.constant(scalar_as, *value);
    return b.cast(b.index(*e), scalar_as);
  }
  if (const auto* real = std::get_if<double>(&a)) return b.constant(scalar_as, *real);
  if (const auto* flag = std::get_if<bool>(&a)) return b.constant(scalar_as, *flag ? 1 : 0);
  return broadcast_element(b, tensor(arg), i);
}

Val Lowering::element(BodyBuilder& b, const Tensor& t, Indices i) const {
  INKLE_CHECK(i.size() == t.rank(), "{}: {} indices for rank {}", node_.op->name, i.size(),
              t.rank());
  require_computable(t.dtype);
  return b.load(t.buffer, t.dtype, t.buffer_indices(i));
}

Val Lowering::broadcast_element(BodyBuilder& b, const Tensor& t, Indices i) const {
  INKLE_CHECK(i.size() >= t.rank(), "{}: {} indices for rank {}", node_.op->name, i.size(),
              t.rank());
  std::vector<Expr> own(i.end() - static_cast<std::ptrdiff_t>(t.rank()), i.end());
  for (std::size_t d = 0; d < own.size(); ++d) {
    if (is_one(t.sizes[d]) && !is_zero(own[d])) own[d] = context().constant(0);
  }
  return element(b, t, own);
}

// --- Recording ----------------------------------------------------------------------------------

Nest Lowering::new_nest(NestKind kind) const {
  Nest nest{.kind = kind, .source = node_.source};
  nest.label = std::string(node_.op->name);
  return nest;
}

Tensor Lowering::new_tensor(Sizes sizes, DType dtype) {
  Tensor t{.dtype = dtype, .sizes = std::move(sizes)};
  if (!node_.results.empty()) t.device = result_type().device;
  t.buffer = program().add_buffer({.name = "t" + std::to_string(program().buffers.size()),
                                   .dtype = dtype,
                                   .device = t.device,
                                   .sizes = t.sizes});
  return t;
}

Tensor Lowering::pointwise(const Sizes& sizes, DType dtype, const ElementFunction& f) {
  require_computable(dtype);
  Nest nest = new_nest(NestKind::pointwise);
  nest.dims = make_dims(context(), sizes);
  const std::vector<Expr> indices = variables(nest.dims);
  BodyBuilder b(nest.body, context());
  b.yield(b.cast(f(b, indices), dtype));
  Tensor t = new_tensor(sizes, dtype);
  nest.stores.push_back({.buffer = t.buffer, .indices = indices});
  program().nests.push_back(std::move(nest));
  return t;
}

// A reduction over a single element is that element.
std::vector<Tensor> Lowering::reduce_nothing(ReduceOp op, const Sizes& sizes, const Sizes& reduced,
                                             DType accumulator, DType dtype,
                                             const ReduceFunction& f) {
  const std::vector<Expr> zeros(reduced.size(), context().constant(0));
  const bool logical = op == ReduceOp::any || op == ReduceOp::all;
  return {pointwise(sizes, dtype, [&](BodyBuilder& b, Indices i) {
    return b.cast(f(b, i, zeros), logical ? DType::boolean : accumulator);
  })};
}

std::vector<Tensor> Lowering::reduce(ReduceOp op, const Sizes& sizes, const Sizes& reduced,
                                     DType accumulator, std::vector<DType> dtypes,
                                     const ReduceFunction& f) {
  INKLE_CHECK(dtypes.size() == loop::result_count(op), "{} dtypes for reduce.{}", dtypes.size(),
              loop::name_of(op));
  for (const DType dtype : dtypes) require_computable(dtype);
  const bool trivial =
      std::all_of(reduced.begin(), reduced.end(), [](Expr e) { return e.is_constant(1); });
  if (trivial && op <= ReduceOp::all) {
    return reduce_nothing(op, sizes, reduced, accumulator, dtypes[0], f);
  }
  Nest nest = new_nest(NestKind::reduction);
  nest.reduce = op;
  nest.accumulator = op == ReduceOp::any || op == ReduceOp::all ? DType::boolean : accumulator;
  nest.dims = make_dims(context(), sizes);
  // Reduced dimensions of size 1 go, but for one.
  std::vector<Expr> inner;
  for (std::size_t d = 0; d < reduced.size(); ++d) {
    if (reduced[d].is_constant(1) && !(trivial && d + 1 == reduced.size())) {
      inner.push_back(context().constant(0));
      continue;
    }
    nest.reduced.push_back({context().index(reduced[d]), reduced[d]});
    inner.push_back(nest.reduced.back().variable);
  }
  const std::vector<Expr> outer = variables(nest.dims);
  BodyBuilder b(nest.body, context());
  b.yield(b.cast(f(b, outer, inner), nest.accumulator));
  std::vector<Tensor> results;
  for (std::size_t r = 0; r < dtypes.size(); ++r) {
    results.push_back(new_tensor(sizes, dtypes[r]));
    nest.stores.push_back({.buffer = results.back().buffer,
                           .indices = outer,
                           .result = static_cast<std::uint32_t>(r)});
  }
  program().nests.push_back(std::move(nest));
  return results;
}

Tensor Lowering::scan(ReduceOp op, const Sizes& sizes, std::size_t dim, DType accumulator,
                      DType dtype, const ElementFunction& f) {
  INKLE_CHECK(op <= ReduceOp::max, "scan.{}", loop::name_of(op));
  INKLE_CHECK(dim < sizes.size(), "scan along dimension {} of {}", dim, sizes.size());
  require_computable(dtype);
  Nest nest = new_nest(NestKind::scan);
  nest.reduce = op;
  nest.accumulator = accumulator;
  std::vector<Dim> dims = make_dims(context(), sizes);
  const std::vector<Expr> indices = variables(dims);
  nest.reduced = {dims[dim]};
  dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(dim));
  nest.dims = std::move(dims);
  BodyBuilder b(nest.body, context());
  b.yield(b.cast(f(b, indices), accumulator));
  Tensor t = new_tensor(sizes, dtype);
  nest.stores.push_back({.buffer = t.buffer, .indices = indices});
  program().nests.push_back(std::move(nest));
  return t;
}

bool Lowering::is_needed_later(ValueId value) const {
  if (state_.remaining.empty()) return true;
  std::uint32_t own = 0;
  graph::for_each_operand(node_, [&](ValueId v) { own += v == value ? 1 : 0; });
  return state_.remaining[value.index] > own;
}

bool Lowering::is_last_use(BufferId buffer) const {
  for (std::uint32_t v = 0; v < state_.values.size(); ++v) {
    const auto& t = state_.values[v];
    if (t && t->buffer == buffer && is_needed_later({v})) return false;
  }
  return true;
}

// Whether later nodes and outputs use the memory only as the destination of effects that overwrite
// it, and at least one does.
bool Lowering::is_overwritten_next(BufferId input) const {
  const auto reads_it = [&](ValueId v) {
    if (v.is_none()) return false;
    const auto& t = state_.values[v.index];
    return t && t->buffer == input;
  };
  const auto& nodes = state_.graph->nodes;
  const auto at = std::find_if(nodes.begin(), nodes.end(),
                               [&](const graph::Node& node) { return &node == &node_; });
  if (at == nodes.end()) return false;
  bool overwritten = false;
  for (auto later = at + 1; later != nodes.end(); ++later) {
    std::size_t uses = 0;
    graph::for_each_operand(*later, [&](ValueId v) { uses += reads_it(v) ? 1U : 0U; });
    if (uses == 0) continue;
    const auto* first = later->args.empty() ? nullptr : std::get_if<ValueId>(&later->args[0]);
    if (uses > 1 || !graph::has(later->op->traits, graph::Trait::effect) || first == nullptr ||
        !reads_it(*first) || !is_whole(*state_.values[first->index], program())) {
      return false;
    }
    overwritten = true;
  }
  const auto& outputs = state_.graph->outputs;
  return overwritten && std::none_of(outputs.begin(), outputs.end(), [&](const auto& output) {
           const auto* v = std::get_if<ValueId>(&output.value);
           return v != nullptr && reads_it(*v);
         });
}

bool Lowering::can_update(const Tensor& base) const {
  if (!is_whole(base, program())) return false;
  const loop::Buffer& buffer = program().buffers[base.buffer];
  switch (buffer.role) {
    case BufferRole::temporary:
      // Results of calls to eager may have elements that share memory.
      return is_last_use(base.buffer) &&
             (!buffer.strides || infer::are_apart(buffer.sizes, *buffer.strides));
    case BufferRole::input:
      return node_.in_place && is_overwritten_next(base.buffer);
    case BufferRole::output:
    case BufferRole::constant:
      return false;
  }
  return false;
}

bool Lowering::should_update(const Tensor& base) const {
  if (!can_update(base)) return false;
  if (program().buffers[base.buffer].role == BufferRole::input) return true;
  const auto* value = std::get_if<ValueId>(&node_.args[0]);
  const auto& nodes = state_.graph->nodes;
  const auto producer = std::find_if(nodes.begin(), nodes.end(), [&](const graph::Node& node) {
    return value != nullptr &&
           std::find(node.results.begin(), node.results.end(), *value) != node.results.end();
  });
  if (producer != nodes.end() && graph::has(producer->op->traits, graph::Trait::update)) {
    return true;
  }
  const auto& nests = program().nests;
  const auto writer = std::find_if(nests.rbegin(), nests.rend(), [&](const Nest& nest) {
    return std::any_of(nest.stores.begin(), nest.stores.end(),
                       [&](const loop::Store& store) { return store.buffer == base.buffer; });
  });
  return writer != nests.rend() && writer->kind != NestKind::pointwise;
}

Tensor Lowering::scatter(const Tensor& base, const Sizes& update_sizes, loop::StoreMode mode,
                         const ScatterIndex& index_of, const ElementFunction& f) {
  Nest nest = new_nest(NestKind::scatter);
  nest.dims = make_dims(context(), update_sizes);
  const std::vector<Expr> indices = variables(nest.dims);
  BodyBuilder b(nest.body, context());
  std::vector<Expr> target = index_of(b, indices);
  INKLE_CHECK(target.size() == base.rank(), "{} indices into rank {}", target.size(), base.rank());
  const bool reads_places = loads_from(nest.body, base.buffer);
  Val value = f(b, indices);
  Tensor t = base;
  t.map = nullptr;
  if (reads_places || !can_update(base)) {
    t = pointwise(base.sizes, base.dtype,
                  [&](BodyBuilder& copy, Indices i) { return element(copy, base, i); });
  } else if (loads_from(nest.body, base.buffer)) {
    // The new elements depend on old ones: all are computed before the first store.
    const Tensor update = pointwise(update_sizes, base.dtype, f);
    nest.body = {};
    BodyBuilder again(nest.body, context());
    target = index_of(again, indices);
    again.yield(element(again, update, indices));
    nest.stores.push_back({.buffer = t.buffer, .indices = std::move(target), .mode = mode});
    program().nests.push_back(std::move(nest));
    return t;
  }
  b.yield(b.cast(value, base.dtype));
  nest.stores.push_back({.buffer = t.buffer, .indices = std::move(target), .mode = mode});
  program().nests.push_back(std::move(nest));
  return t;
}

void Lowering::keep_old_values(BufferId buffer) {
  for (std::uint32_t v = 0; v < state_.values.size(); ++v) {
    const auto& t = state_.values[v];
    if (!t || t->buffer != buffer || !is_needed_later({v})) continue;
    const Tensor old = *t;
    state_.values[v] = pointwise(old.sizes, old.dtype,
                                 [&](BodyBuilder& b, Indices i) { return element(b, old, i); });
  }
}

Tensor Lowering::store_into(const Tensor& to, const ElementFunction& f) {
  Tensor destination = to;  // `to` may live in the values that keep_old_values changes
  require_computable(destination.dtype);
  if (program().buffers[destination.buffer].role != BufferRole::input) {
    unsupported("{} writes to a value that is not a graph input", node_.op->name);
  }
  const auto record = [&](const ElementFunction& g) {
    Nest nest = new_nest(NestKind::pointwise);
    nest.dims = make_dims(context(), destination.sizes);
    const std::vector<Expr> indices = variables(nest.dims);
    BodyBuilder b(nest.body, context());
    b.yield(b.cast(g(b, indices), destination.dtype));
    nest.stores.push_back(
        {.buffer = destination.buffer, .indices = destination.buffer_indices(indices)});
    return nest;
  };
  if (keeps_everything(record(f))) return destination;
  keep_old_values(destination.buffer);
  Nest nest = record(f);
  if (loads_from(nest.body, destination.buffer, &nest.stores[0].indices)) {
    // It loads elements that other points overwrite: all are computed before the first store.
    const Tensor value = pointwise(destination.sizes, destination.dtype, f);
    nest = record([&](BodyBuilder& b, Indices i) { return element(b, value, i); });
  }
  program().nests.push_back(std::move(nest));
  return destination;
}

Tensor Lowering::view(const Tensor& of, Sizes sizes,
                      std::function<std::vector<Expr>(Indices)> map) const {
  Tensor t = of;
  t.sizes = std::move(sizes);
  if (of.map) {
    t.map = [inner = of.map, map = std::move(map)](Indices i) { return inner(map(i)); };
  } else {
    t.map = std::move(map);
  }
  return t;
}

Tensor Lowering::materialise(const Tensor& t, std::optional<Sizes> strides) {
  const Sizes wanted = strides ? *strides : graph::contiguous_strides(context(), t.sizes);
  INKLE_CHECK(wanted.size() == t.rank(), "{} strides for rank {}", wanted.size(), t.rank());
  if (is_whole(t, program())) {
    Buffer& buffer = program().buffers[t.buffer];
    if (!buffer.strides) buffer.strides = wanted;
    if (same_strides(t.sizes, *buffer.strides, wanted)) {
      Tensor same = t;
      same.map = nullptr;
      return same;
    }
  }
  Tensor copy =
      pointwise(t.sizes, t.dtype, [&](BodyBuilder& b, Indices i) { return element(b, t, i); });
  Buffer& buffer = program().buffers[copy.buffer];
  buffer.strides = wanted;
  copy.device = buffer.device = t.device;  // of the operand, not of the op's result
  return copy;
}

Tensor Lowering::whole(const Tensor& t) {
  if (is_whole(t, program())) {
    Tensor same = t;
    same.map = nullptr;
    return same;
  }
  return pointwise(t.sizes, t.dtype, [&](BodyBuilder& b, Indices i) { return element(b, t, i); });
}

// --- Results ------------------------------------------------------------------------------------

void Lowering::result(std::size_t i, Tensor t) {
  const Type& type = result_type(i);
  INKLE_CHECK(t.dtype == type.dtype && same_sizes(t.sizes, type.sizes),
              "{}: result {} is lowered as {}, its type is {}", node_.op->name, i,
              describe(t.dtype, t.sizes), graph::to_string(type));
  t.sizes = type.sizes;
  state_.values[node_.results[i].index] = std::move(t);
}

}  // namespace inkle::ops
