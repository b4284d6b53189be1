#include "ops/axes.h"

#include "ops/infer.h"

#include <variant>

namespace inkle::ops {

Axes Axes::from(std::size_t first, std::size_t rank) {
  Axes axes{std::vector<bool>(rank, false)};
  for (std::size_t d = first; d < rank; ++d) axes.is_reduced[d] = true;
  return axes;
}

Axes Axes::only(std::size_t dim, std::size_t rank) {
  Axes axes{std::vector<bool>(rank, false)};
  if (rank > 0) axes.is_reduced[dim] = true;
  return axes;
}

Sizes Axes::kept(const Sizes& sizes) const {
  Sizes kept;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (!is_reduced[d]) kept.push_back(sizes[d]);
  }
  return kept;
}

Sizes Axes::reduced(sym::Context& context, const Sizes& sizes) const {
  Sizes reduced;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (is_reduced[d]) reduced.push_back(sizes[d]);
  }
  if (reduced.empty()) reduced.push_back(context.constant(1));
  return reduced;
}

Sizes Axes::result(sym::Context& context, const Sizes& sizes, bool keepdim) const {
  if (!keepdim) return kept(sizes);
  Sizes result = sizes;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (is_reduced[d]) result[d] = context.constant(1);
  }
  return result;
}

std::vector<Expr> Axes::join(Indices outer, Indices inner) const {
  std::vector<Expr> full;
  full.reserve(is_reduced.size());
  std::size_t next_outer = 0, next_inner = 0;
  for (const bool reduced : is_reduced) {
    full.push_back(reduced ? inner[next_inner++] : outer[next_outer++]);
  }
  return full;
}

std::vector<Expr> Axes::kept_indices(Indices full) const {
  std::vector<Expr> kept;
  for (std::size_t d = 0; d < full.size(); ++d) {
    if (!is_reduced[d]) kept.push_back(full[d]);
  }
  return kept;
}

namespace {

template <class Source, class Dim>
Axes make_axes(const Source& in, const std::vector<std::int64_t>& dims, std::size_t rank,
               const Dim& fail) {
  if (dims.empty()) return Axes::all(rank);
  Axes axes{std::vector<bool>(rank, false)};
  for (const std::int64_t d : dims) {
    const std::size_t dim = in.dim(d, rank);
    if (rank == 0) continue;
    if (axes.is_reduced[dim]) fail();
    axes.is_reduced[dim] = true;
  }
  return axes;
}

}  // namespace

Axes axes_of(const Inference& in, std::size_t arg, std::size_t rank) {
  const bool single = std::holds_alternative<Expr>(in.arg(arg));
  return make_axes(in, single ? std::vector{in.constant_integer(arg)} : in.constant_integers(arg),
                   rank, [&] { in.fail("a dimension is named twice"); });
}

Axes axes_of(const Evaluation& e, std::size_t arg, std::size_t rank) {
  const bool single = std::holds_alternative<Expr>(e.node().args[arg]);
  return make_axes(e, single ? std::vector{e.integer(arg)} : e.integers(arg), rank, [] {});
}

std::vector<std::vector<std::size_t>> reduction_groups(const RefTensor& t, const Axes& axes) {
  std::vector<std::int64_t> kept;
  for (std::size_t d = 0; d < t.rank(); ++d) {
    if (!axes.is_reduced[d]) kept.push_back(t.sizes[d]);
  }
  const RefTensor shape(DType::boolean, kept);
  std::vector<std::vector<std::size_t>> groups(shape.count());
  for_each_index(t.sizes, [&](std::span<const std::int64_t> indices, std::size_t position) {
    std::vector<std::int64_t> outer;
    for (std::size_t d = 0; d < indices.size(); ++d) {
      if (!axes.is_reduced[d]) outer.push_back(indices[d]);
    }
    groups[shape.at(outer)].push_back(position);
  });
  return groups;
}

Tensor keep_dims(const Lowering& l, const Tensor& t, const Axes& axes, bool keepdim) {
  if (!keepdim) return t;
  Sizes sizes;
  std::size_t next = 0;
  for (const bool reduced : axes.is_reduced) {
    sizes.push_back(reduced ? l.context().constant(1) : t.sizes[next++]);
  }
  return l.view(t, std::move(sizes), [axes](Indices i) { return axes.kept_indices(i); });
}

const Type& float_tensor(Inference& in, std::size_t i) {
  const Type& type = infer::computable(in, i);
  if (!abi::is_float(type.dtype)) in.fail("needs a floating-point tensor");
  return type;
}

DType accumulator_of(const Type& x, abi::SetOf<DType> wide) {
  const bool is_wide = wide.has(x.dtype) && x.device.kind == abi::DeviceKind::cpu;
  return is_wide ? DType::f64 : abi::compute_type(x.dtype);
}

Val count_value(BodyBuilder& b, const Sizes& sizes, DType dtype) {
  return b.cast(b.index(sym::product(b.context(), sizes)), dtype);
}

Val element_as(const Lowering& l, BodyBuilder& b, const Tensor& t, Indices i, DType dtype) {
  return b.cast(l.element(b, t, i), dtype);
}

std::vector<std::int64_t> spatial_list(const Inference& in, std::size_t arg, std::size_t rank,
                                       std::int64_t otherwise) {
  std::vector<std::int64_t> list = std::holds_alternative<Expr>(in.arg(arg))
                                       ? std::vector<std::int64_t>{in.constant_integer(arg)}
                                       : in.constant_integers(arg);
  if (list.empty()) list.push_back(otherwise);
  if (list.size() == 1) list.resize(rank, list.front());
  if (list.size() != rank) in.fail("needs one number or one for each spatial dimension");
  return list;
}

std::vector<Expr> unflatten(const Sizes& sizes, Expr linear) {
  std::vector<Expr> indices(sizes.size());
  Expr rest = linear;
  for (std::size_t d = sizes.size(); d-- > 0;) {
    indices[d] = d == 0 ? rest : mod(rest, sizes[d]);
    if (d > 0) rest = floordiv(rest, sizes[d]);
  }
  return indices;
}

Expr flatten(sym::Context& context, const Sizes& sizes, Indices indices) {
  Expr linear = context.constant(0);
  for (std::size_t d = 0; d < sizes.size(); ++d) linear = linear * sizes[d] + indices[d];
  return linear;
}

std::vector<DType> number_dtypes() { return {DType::f32, DType::bf16, DType::f64, DType::i32}; }
std::vector<DType> float_dtypes() { return {DType::f32, DType::bf16, DType::f64}; }

loop::Convolution convolution_parameters(const Inference& in, std::size_t first,
                                         std::size_t spatial) {
  loop::Convolution c;
  c.stride = spatial_list(in, first, spatial, 1);
  c.padding = spatial_list(in, first + 1, spatial, 0);
  c.dilation = spatial_list(in, first + 2, spatial, 1);
  c.transposed = in.boolean(first + 3);
  c.output_padding = spatial_list(in, first + 4, spatial, 0);
  c.groups = in.constant_integer(first + 5);
  return c;
}

}  // namespace inkle::ops
