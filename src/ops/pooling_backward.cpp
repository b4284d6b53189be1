// Gradients of pooling, as gathers: each element of the input sums over the windows that contain
// it, so that no two writes collide.
#include "base/error.h"
#include "ops/axes.h"
#include "ops/infer.h"
#include "ops/pool_window.h"
#include "ops/samples.h"
#include "ops/table.h"

namespace inkle::ops {
namespace {

using graph::Argument;
using graph::OpDef;
using graph::Sample;
using graph::Trait;
using infer::Types;

// Windows over one element up to which their loop is unrolled: a limit of code size, not measured.
constexpr std::int64_t kUnrolledVisits = 25;

// (grad, self, kernel, stride, padding, ...); the indices of a maximum are the last argument.
constexpr std::size_t kKernel = 2, kIndices = 7;

template <Pool pool, std::size_t rank>
Types infer_backward(Inference& in) {
  const Type &g = float_tensor(in, 0), &x = float_tensor(in, 1);
  if (x.rank() != rank + 1 && x.rank() != rank + 2) in.fail("the input has the wrong rank");
  if (g.rank() != x.rank() || g.dtype != x.dtype) in.fail("the gradient does not fit");
  const Window w = window_of<pool, rank>(in, kKernel);
  for (std::size_t d = 0; d < rank; ++d) {
    if (w.kernel[d] <= 0 || w.stride[d] <= 0 || w.dilation[d] <= 0) {
      in.fail("kernel, stride and dilation are positive");
    }
  }
  if (pool == Pool::max && infer::computable(in, kIndices).dtype != DType::i64) {
    in.fail("indices are i64");
  }
  return {infer::make(x, x.dtype, x.sizes)};
}

// How many windows may reach one element along each dimension.
Numbers visits_of(const Window& w) {
  Numbers visits;
  for (std::size_t d = 0; d < w.rank(); ++d) {
    const std::int64_t reach = w.dilation[d] * (w.kernel[d] - 1) + 1;
    visits.push_back((reach + w.stride[d] - 1) / w.stride[d]);
  }
  return visits;
}

// What the visit-th window contributes to the element at i: 0 where there is no such window.
template <Pool pool, std::size_t rank>
Val brought(const Lowering& l, BodyBuilder& b, const Window& w, Indices i, Indices visit) {
  const Tensor &g = l.tensor(0), &x = l.tensor(1);
  const DType compute = abi::compute_type(g.dtype);
  const std::size_t first = x.rank() - rank;
  const Val none = b.constant(DType::i64, std::int64_t{0});
  Val inside = b.constant(DType::boolean, std::int64_t{1});
  std::vector<Expr> o(i.begin(), i.end());
  Expr count = l.context().constant(1);
  for (std::size_t d = 0; d < rank; ++d) {
    const Expr padded = i[first + d] + w.padding[d];
    const Expr window = floordiv(padded, w.stride[d]) - visit[d];
    o[first + d] = window;
    inside = b.logical_and(inside, b.binary(Opcode::less_equal, none, b.index(window)));
    inside = b.logical_and(inside, b.less(b.index(window), b.index(g.sizes[first + d])));
    if (pool == Pool::average) {
      const Expr offset = padded - window * w.stride[d];
      inside = b.logical_and(inside, b.less(b.index(offset), b.constant(DType::i64, w.kernel[d])));
      count = count * counted(w, d, window, x.sizes[first + d]);
    }
  }
  const Val zero = b.constant(compute, 0.0);
  const Val read = b.cast(
      b.load_if(inside, b.constant(g.dtype, 0.0), g.buffer, g.dtype, g.buffer_indices(o)), compute);
  if (pool == Pool::average) {
    const Val by = w.divisor ? b.constant(compute, *w.divisor) : b.cast(b.index(count), compute);
    return b.select(inside, b.div(read, by), zero);
  }
  const Tensor& indices = l.tensor(kIndices);
  const Val at = b.load_if(inside, b.constant(DType::i64, std::int64_t{-1}), indices.buffer,
                           DType::i64, indices.buffer_indices(o));
  const Sizes plane(x.sizes.begin() + static_cast<std::ptrdiff_t>(first), x.sizes.end());
  const Val here = b.index(flatten(l.context(), plane, i.subspan(first)));
  return b.select(b.binary(Opcode::equal, at, here), read, zero);
}

template <Pool pool, std::size_t rank>
void lower_backward(Lowering& l) {
  const Window w = window_of<pool, rank>(l.args(), kKernel);
  const Tensor& x = l.tensor(1);
  const DType compute = abi::compute_type(x.dtype);
  const Numbers visits = visits_of(w);
  std::int64_t total = 1;
  Sizes reduced;
  for (const std::int64_t v : visits) {
    total *= v;
    reduced.push_back(l.context().constant(v));
  }
  if (total > kUnrolledVisits) {
    l.result(l.reduce(loop::ReduceOp::sum, x.sizes, reduced, compute, {x.dtype},
                      [&](BodyBuilder& b, Indices i, Indices visit) {
                        return brought<pool, rank>(l, b, w, i, visit);
                      })[0]);
    return;
  }
  l.result(l.pointwise(x.sizes, x.dtype, [&](BodyBuilder& b, Indices i) {
    Val sum = b.constant(compute, 0.0);
    for_each_index(visits, [&](std::span<const std::int64_t> visit, std::size_t) {
      std::vector<Expr> v;
      for (const std::int64_t n : visit) v.push_back(l.context().constant(n));
      sum = b.add(sum, brought<pool, rank>(l, b, w, i, v));
    });
    return sum;
  }));
}

template <std::size_t rank>
void reference_max(Evaluation& e) {
  const RefTensor &g = e.tensor(0), &indices = e.tensor(kIndices);
  RefTensor& y = e.result();
  std::size_t from = 1, to = 1;
  for (std::size_t d = y.rank() - rank; d < y.rank(); ++d) {
    from *= static_cast<std::size_t>(g.sizes[d]);
    to *= static_cast<std::size_t>(y.sizes[d]);
  }
  for (std::size_t p = 0; p < g.count(); ++p) {
    if (indices.integer(p) < 0 || indices.integer(p) >= static_cast<std::int64_t>(to)) continue;
    const std::size_t at = p / from * to + static_cast<std::size_t>(indices.integer(p));
    y.set(at, y.real(at) + g.real(p));
  }
}
template <std::size_t rank>
void reference_average(Evaluation& e) {
  const RefTensor& g = e.tensor(0);
  RefTensor& y = e.result();
  const Window w = window_of<Pool::average, rank>(e, kKernel);
  const std::size_t first = y.rank() - rank;
  for_each_index(g.sizes, [&](std::span<const std::int64_t> o, std::size_t p) {
    std::vector<std::size_t> inside;
    double count = 1;
    for (std::size_t d = 0; d < rank; ++d) {
      const std::int64_t start = o[first + d] * w.stride[d] - w.padding[d];
      const std::int64_t end = std::min(start + w.kernel[d], y.sizes[first + d] + w.padding[d]);
      count *= static_cast<double>(end - start);
    }
    for_each_index(w.kernel, [&](std::span<const std::int64_t> r, std::size_t) {
      std::vector<std::int64_t> i(o.begin(), o.end());
      for (std::size_t d = 0; d < rank; ++d) {
        i[first + d] = o[first + d] * w.stride[d] - w.padding[d] + r[d];
        if (i[first + d] < 0 || i[first + d] >= y.sizes[first + d]) return;
      }
      inside.push_back(y.at(i));
    });
    if (!w.count_include_pad) count = static_cast<double>(inside.size());
    for (const std::size_t j : inside) {
      y.set(j, y.real(j) + g.real(p) / w.divisor.value_or(count));
    }
  });
}

// A plane of 9 x 8 (x 7) and `windows` windows along each dimension.
template <std::size_t rank>
Argument plane(SampleBuilder& s, std::int64_t windows) {
  std::vector<Expr> sizes = {s.size(2), s.constant(3)};
  for (std::size_t d = 0; d < rank; ++d) {
    sizes.push_back(s.constant(windows > 0 ? windows : 9 - static_cast<int>(d)));
  }
  return s.tensor(std::move(sizes));
}
std::vector<Expr> same(SampleBuilder& s, std::size_t rank, std::int64_t value) {
  return std::vector<Expr>(rank, s.constant(value));
}
template <std::size_t rank>
std::vector<Sample> samples_average() {
  return {{"padded",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {plane<rank>(s, 4),
                     plane<rank>(s, 0),
                     same(s, rank, 3),
                     same(s, rank, 2),
                     same(s, rank, 1),
                     false,
                     false};
           },
           float_dtypes(), true},
          {"overlapping",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {plane<rank>(s, 3),
                     plane<rank>(s, 0),
                     same(s, rank, 6),
                     same(s, rank, 1),
                     same(s, rank, 0),
                     false,
                     true};
           },
           {DType::f32},
           true}};
}
// One window over the whole plane, so that any index is one that it reaches.
template <std::size_t rank>
std::vector<Sample> samples_max() {
  return {{"whole",
           [](SampleBuilder& s) -> std::vector<Argument> {
             std::vector<Expr> kernel, sizes = {s.size(2), s.constant(3)};
             std::int64_t count = 1;
             for (std::size_t d = 0; d < rank; ++d) {
               const std::int64_t extent = 9 - static_cast<std::int64_t>(d);
               kernel.push_back(s.constant(extent));
               sizes.push_back(s.constant(1));
               count *= extent;
             }
             std::vector<Argument> arguments = {
                 plane<rank>(s, 1), plane<rank>(s, 0), kernel, same(s, rank, 4),
                 same(s, rank, 0),  same(s, rank, 1),  false};
             arguments.push_back(
                 s.tensor(DType::i64, std::move(sizes), 0, static_cast<double>(count - 1)));
             return arguments;
           },
           float_dtypes(), true}};
}

constexpr std::string_view kSchemaAverage =
    "(grad_output: tensor, self: tensor, kernel_size: integer_list, stride: integer_list, "
    "padding: integer_list, ceil_mode: boolean, count_include_pad: boolean, "
    "divisor_override: optional_integer = none) -> tensor";
constexpr std::string_view kSchemaMax =
    "(grad_output: tensor, self: tensor, kernel_size: integer_list, stride: integer_list, "
    "padding: integer_list, dilation: integer_list, ceil_mode: boolean, indices: tensor) -> tensor";

template <std::size_t rank>
constexpr OpDef average_row(std::string_view name, std::string_view aten) {
  return {.name = name,
          .schema = kSchemaAverage,
          .doc = "Gradient of the mean of windows.",
          .traits = Trait::reduction,
          .infer = infer_backward<Pool::average, rank>,
          .lower = lower_backward<Pool::average, rank>,
          .reference = reference_average<rank>,
          .aten = aten,
          .samples = samples_average<rank>};
}
template <std::size_t rank>
constexpr OpDef max_row(std::string_view name, std::string_view aten) {
  return {.name = name,
          .schema = kSchemaMax,
          .doc = "Gradient of the largest element of windows.",
          .traits = Trait::reduction,
          .infer = infer_backward<Pool::max, rank>,
          .lower = lower_backward<Pool::max, rank>,
          .reference = reference_max<rank>,
          .aten = aten,
          .samples = samples_max<rank>};
}
constexpr OpDef kPoolingBackward[] = {
    average_row<2>("avg_pool2d_backward", "aten::avg_pool2d_backward"),
    average_row<3>("avg_pool3d_backward", "aten::avg_pool3d_backward"),
    max_row<2>("max_pool2d_with_indices_backward", "aten::max_pool2d_with_indices_backward"),
    max_row<3>("max_pool3d_with_indices_backward", "aten::max_pool3d_with_indices_backward"),
};

}  // namespace

std::span<const OpDef> pooling_backward_ops() { return kPoolingBackward; }

}  // namespace inkle::ops
