// The part of Lowering that records contractions and calls.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "ops/lowering.h"

namespace inkle::ops {
namespace {

using graph::ValueId;
using loop::Access;
using loop::Nest;
using loop::NestKind;

Expr batch_index(sym::Context& context, Expr size, Expr index) {
  return is_one(size) && !(sym::bounds(index) == sym::Range{0, 0}) ? context.constant(0) : index;
}

Expr broadcast_size(Expr a, Expr b) { return is_one(a) ? b : a; }

// Visits every tensor and every integer of an argument.
struct EagerArguments {
  std::vector<std::variant<ValueId, Expr>>& list;

  void operator()(ValueId v) const {
    if (!v.is_none()) list.emplace_back(v);
  }
  void operator()(const std::vector<ValueId>& values) const {
    for (const ValueId v : values) (*this)(v);
  }
  void operator()(Expr e) const { list.emplace_back(e); }
  void operator()(const std::vector<Expr>& values) const {
    for (const Expr e : values) list.emplace_back(e);
  }
  template <class T>
  void operator()(const T&) const {}
};

}  // namespace

Tensor Lowering::matmul(const Tensor& a, const Tensor& b, DType dtype) {
  const std::size_t rank = a.rank();
  INKLE_CHECK(rank >= 2 && b.rank() == rank, "matmul of ranks {} and {}", rank, b.rank());
  if (!abi::is_computable(dtype)) unsupported("no code for {} matmul", abi::name_of(dtype));
  Nest nest = new_nest(NestKind::matmul);
  nest.accumulator = abi::compute_type(dtype);
  Sizes sizes;
  for (std::size_t d = 0; d + 2 < rank; ++d) {
    sizes.push_back(broadcast_size(a.sizes[d], b.sizes[d]));
  }
  sizes.push_back(a.sizes[rank - 2]);
  sizes.push_back(b.sizes[rank - 1]);
  std::vector<Expr> out;
  for (const Expr size : sizes) {
    nest.dims.push_back({context().index(size), size});
    out.push_back(nest.dims.back().variable);
  }
  const Expr k = a.sizes[rank - 1];
  nest.reduced = {{context().index(k), k}};
  std::vector<Expr> of_a;
  std::vector<Expr> of_b;
  for (std::size_t d = 0; d + 2 < rank; ++d) {
    of_a.push_back(batch_index(context(), a.sizes[d], out[d]));
    of_b.push_back(batch_index(context(), b.sizes[d], out[d]));
  }
  of_a.insert(of_a.end(), {out[rank - 2], nest.reduced[0].variable});
  of_b.insert(of_b.end(), {nest.reduced[0].variable, out[rank - 1]});
  nest.detail = loop::Matmul{.a = {a.buffer, a.buffer_indices(of_a)},
                             .b = {b.buffer, b.buffer_indices(of_b)}};
  Tensor t = new_tensor(sizes, dtype);
  nest.stores.push_back({.buffer = t.buffer, .indices = out});
  program().nests.push_back(std::move(nest));
  return t;
}

Tensor Lowering::convolution(const Tensor& x, const Tensor& w, const Tensor* bias,
                             loop::Convolution parameters, const Sizes& sizes, DType dtype) {
  if (!abi::is_float(dtype)) unsupported("no code for {} convolution", abi::name_of(dtype));
  parameters.x = whole(x).buffer;
  parameters.w = whole(w).buffer;
  if (bias != nullptr) parameters.bias = whole(*bias).buffer;
  Nest nest = new_nest(NestKind::convolution);
  nest.accumulator = abi::compute_type(dtype);
  std::vector<Expr> out;
  for (const Expr size : sizes) {
    nest.dims.push_back({context().index(size), size});
    out.push_back(nest.dims.back().variable);
  }
  nest.detail = std::move(parameters);
  Tensor t = new_tensor(sizes, dtype);
  nest.stores.push_back({.buffer = t.buffer, .indices = out});
  program().nests.push_back(std::move(nest));
  return t;
}

// Each operand is addressed with variables of its own extents, so that index maps simplify; then
// they are renamed to the shared ones.
loop::Access Lowering::attention_access(const loop::Attention& detail, const Tensor& t,
                                        const Sizes& extents) {
  std::vector<Expr> own;
  std::vector<std::pair<Expr, Expr>> renamed;
  for (std::size_t d = 0; d < 4; ++d) {
    const Expr variable = context().index(extents[d]);
    renamed.emplace_back(variable, detail.variables[d]);
    const std::size_t missing = 4 - t.rank();
    if (d >= missing) own.push_back(batch_index(context(), t.sizes[d - missing], variable));
  }
  Access result{t.buffer, t.buffer_indices(own)};
  for (Expr& e : result.indices) e = sym::substitute(e, renamed);
  return result;
}

loop::Attention Lowering::attention_detail(const AttentionArguments& arguments) {
  const Tensor& q = *arguments.q;
  const Tensor& k = *arguments.k;
  const Tensor& v = *arguments.v;
  INKLE_CHECK(q.rank() == 4 && k.rank() == 4 && v.rank() == 4, "attention of ranks {}, {}, {}",
              q.rank(), k.rank(), v.rank());
  if (q.sizes[3].is_constant(0) || v.sizes[3].is_constant(0)) {
    unsupported("attention whose heads have no features");
  }
  loop::Attention detail{.batch = q.sizes[0],
                         .heads = q.sizes[1],
                         .kv_heads = k.sizes[1],
                         .q_length = q.sizes[2],
                         .kv_length = k.sizes[2],
                         .head_dim = q.sizes[3],
                         .value_dim = v.sizes[3],
                         .scale = arguments.scale,
                         .is_causal = arguments.is_causal,
                         .safe = arguments.safe,
                         .hidden = arguments.hidden};
  detail.variables = {
      context().index(detail.batch), context().index(detail.heads),
      context().index(sym::max(detail.q_length, detail.kv_length)),
      context().index(sym::max(sym::max(detail.head_dim, detail.value_dim), detail.kv_length))};
  detail.q = attention_access(detail, q, q.sizes);
  detail.k = attention_access(detail, k, {q.sizes[0], k.sizes[1], k.sizes[2], k.sizes[3]});
  detail.v = attention_access(detail, v, {q.sizes[0], v.sizes[1], v.sizes[2], v.sizes[3]});
  if (arguments.mask != nullptr) {
    INKLE_CHECK(arguments.mask->rank() <= 4, "a mask of rank {}", arguments.mask->rank());
    detail.mask = attention_access(detail, *arguments.mask,
                                   {detail.batch, detail.heads, detail.q_length, detail.kv_length});
  }
  if (arguments.seed != nullptr && arguments.p != 0) {
    detail.dropout = {whole(*arguments.seed).buffer, arguments.number, arguments.p};
  }
  return detail;
}

std::vector<Tensor> Lowering::attention(const AttentionArguments& arguments, DType dtype) {
  if (!abi::is_float(dtype)) unsupported("no code for {} attention", abi::name_of(dtype));
  loop::Attention detail = attention_detail(arguments);
  const Sizes sizes = {detail.batch, detail.heads, detail.q_length, detail.value_dim};
  Nest nest = new_nest(NestKind::attention);
  nest.accumulator = abi::compute_type(dtype);
  std::vector<Expr> out;
  for (const Expr size : sizes) {
    nest.dims.push_back({context().index(size), size});
    out.push_back(nest.dims.back().variable);
  }
  std::vector<Tensor> results = {new_tensor(sizes, dtype)};
  if (arguments.want_lse) {
    results.push_back(new_tensor({sizes[0], sizes[1], sizes[2]}, nest.accumulator));
    detail.lse = results[1].buffer;
  }
  if (arguments.want_statistics) {
    results.push_back(
        new_tensor({sizes[0], sizes[1], sizes[2], context().constant(2)}, nest.accumulator));
    detail.statistics = results.back().buffer;
  }
  nest.detail = std::move(detail);
  nest.stores.push_back({.buffer = results[0].buffer, .indices = out});
  program().nests.push_back(std::move(nest));
  return results;
}

std::vector<Tensor> Lowering::attention_gradient(const AttentionArguments& arguments,
                                                 const Tensor& grad, const Tensor& out,
                                                 const Tensor& statistics) {
  const DType dtype = arguments.q->dtype;
  loop::Attention detail = attention_detail(arguments);
  const Sizes sizes = {detail.batch, detail.heads, detail.q_length, detail.value_dim};
  detail.gradient = {attention_access(detail, grad, sizes), attention_access(detail, out, sizes),
                     whole(statistics).buffer};
  Nest nest = new_nest(NestKind::attention);
  nest.accumulator = abi::compute_type(dtype);
  std::vector<Expr> at;
  for (const Expr size : arguments.q->sizes) {
    nest.dims.push_back({context().index(size), size});
    at.push_back(nest.dims.back().variable);
  }
  std::vector<Tensor> results;
  for (const Tensor* t : {arguments.q, arguments.k, arguments.v}) {
    results.push_back(new_tensor(t->sizes, dtype));
    const auto number = static_cast<std::uint32_t>(nest.stores.size());
    nest.stores.push_back({results.back().buffer, at, loop::StoreMode::overwrite, number});
  }
  nest.detail = std::move(detail);
  program().nests.push_back(std::move(nest));
  return results;
}

std::vector<Tensor> Lowering::eager() {
  INKLE_CHECK(node_.eager_target.has_value(), "{} has no eager target", node_.op->name);
  loop::EagerCall call{.name = std::string(node_.op->name), .target = *node_.eager_target};
  if (node_.op == &graph::kEagerOp) call.name = std::get<std::string>(node_.args.front());
  std::vector<std::variant<ValueId, Expr>> list;
  for (const graph::Argument& a : node_.args) std::visit(EagerArguments{list}, a);
  for (const auto& entry : list) {
    if (const auto* e = std::get_if<Expr>(&entry)) {
      call.arguments.emplace_back(*e);
      continue;
    }
    const ValueId v = std::get<ValueId>(entry);
    const Tensor t = state_.values[v.index].value();
    call.arguments.emplace_back(materialise(t, state_.graph->type(v).strides).buffer);
  }
  std::vector<Tensor> results;
  for (std::size_t r = 0; r < node_.results.size(); ++r) {
    const graph::Type& type = result_type(r);
    Tensor t = new_tensor(type.sizes, type.dtype);
    t.device = type.device;
    loop::Buffer& buffer = program().buffers[t.buffer];
    buffer.device = type.device;
    buffer.strides =
        type.strides ? *type.strides : graph::contiguous_strides(context(), type.sizes);
    call.results.push_back(t.buffer);
    results.push_back(std::move(t));
  }
  Nest nest = new_nest(NestKind::eager);
  nest.label = call.name;
  nest.detail = std::move(call);
  program().nests.push_back(std::move(nest));
  return results;
}

}  // namespace inkle::ops
