// Pooling over windows. Small windows are unrolled inside one pointwise nest, so that they fuse
// like any elementwise code; large ones reduce. Positions outside the input are predicated loads.
#include <algorithm>
#include <cmath>
#include <limits>

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
using loop::ReduceOp;

// Elements of a window up to which it is unrolled: a limit of code size, not measured.
constexpr std::int64_t kUnrolledWindow = 25;

// The number of windows along one dimension. In ceil mode the last one starts inside the input or
// its left padding.
Expr pooled_size(Inference& in, const Window& w, std::size_t d, Expr size) {
  const std::int64_t reach = w.dilation[d] * (w.kernel[d] - 1) + 1;
  const std::int64_t round_up = w.ceil_mode ? w.stride[d] - 1 : 0;
  const Expr count = floordiv(size + (2 * w.padding[d] - reach + round_up), w.stride[d]) + 1;
  if (!w.ceil_mode || in.context().guard_less((count - 1) * w.stride[d], size + w.padding[d])) {
    return count;
  }
  return count - 1;
}

template <Pool pool, std::size_t rank, int results>
Types infer_pool(Inference& in) {
  const Type& x = float_tensor(in, 0);
  if (x.rank() != rank + 1 && x.rank() != rank + 2) in.fail("the input has the wrong rank");
  const Window w = window_of<pool, rank>(in);
  for (const Numbers* list : {&w.kernel, &w.stride, &w.padding, &w.dilation}) {
    if (list->size() != rank) in.fail("needs one number or one for each spatial dimension");
  }
  Sizes sizes = x.sizes;
  for (std::size_t d = 0; d < rank; ++d) {
    if (w.kernel[d] <= 0 || w.stride[d] <= 0 || w.dilation[d] <= 0) {
      in.fail("kernel, stride and dilation are positive");
    }
    if (w.padding[d] < 0 || 2 * w.padding[d] > w.kernel[d]) {
      in.fail("padding is at most half of the kernel");
    }
    Expr& size = sizes[x.rank() - rank + d];
    size = pooled_size(in, w, d, size);
    if (sym::bounds(size).high <= 0) in.fail("a result size would not be positive");
  }
  Types types = {infer::make(x, x.dtype, sizes)};
  if (results == 2) types.push_back(infer::make(x, DType::i64, sizes));
  return types;
}

// Input indices of window position `r` of the window at `o`.
std::vector<Expr> window_indices(const Window& w, Indices o, Indices r) {
  std::vector<Expr> indices(o.begin(), o.end());
  const std::size_t first = o.size() - w.rank();
  for (std::size_t d = 0; d < w.rank(); ++d) {
    indices[first + d] = o[first + d] * w.stride[d] - w.padding[d] + r[d] * w.dilation[d];
  }
  return indices;
}

// x at the indices, `otherwise` where one of the last `rank` is outside; f32 or f64.
Val padded_element(BodyBuilder& b, const Tensor& x, std::size_t rank,
                   const std::vector<Expr>& indices, double otherwise) {
  Val inside = b.constant(DType::boolean, std::int64_t{1});
  for (std::size_t d = x.rank() - rank; d < x.rank(); ++d) {
    const Val at = b.index(indices[d]);
    const Val zero = b.constant(DType::i64, std::int64_t{0});
    inside = b.logical_and(inside, b.binary(Opcode::greater_equal, at, zero));
    inside = b.logical_and(inside, b.less(at, b.index(x.sizes[d])));
  }
  const DType compute = abi::compute_type(x.dtype);
  return b.cast(b.load_if(inside, b.constant(x.dtype, otherwise), x.buffer, x.dtype,
                          x.buffer_indices(indices)),
                compute);
}

// Calls f with the constant indices of every position of the window, in row-major order.
template <class F>
void for_each_position(sym::Context& context, const Window& w, const F& f) {
  for_each_index(w.kernel, [&](std::span<const std::int64_t> r, std::size_t) {
    std::vector<Expr> position;
    for (const std::int64_t i : r) position.push_back(context.constant(i));
    f(Indices(position));
  });
}
Sizes extents(sym::Context& context, const Window& w) {
  Sizes sizes;
  for (const std::int64_t k : w.kernel) sizes.push_back(context.constant(k));
  return sizes;
}

// Position in the pooled plane of the element at `indices`.
Expr plane_position(sym::Context& context, const Tensor& x, std::size_t rank, Indices indices) {
  const std::size_t first = x.rank() - rank;
  return flatten(context,
                 Sizes(x.sizes.begin() + static_cast<std::ptrdiff_t>(first), x.sizes.end()),
                 indices.subspan(first));
}

// The indices of the maxima, by an unrolled search: the first of equals; a NaN wins.
Tensor unrolled_argmax(Lowering& l, const Tensor& x, const Window& w, const Sizes& sizes) {
  const double lowest = -std::numeric_limits<double>::infinity();
  return l.pointwise(sizes, DType::i64, [&](BodyBuilder& b, Indices o) {
    Val best = 0, at = 0;
    bool is_first = true;
    for_each_position(l.context(), w, [&](Indices r) {
      const std::vector<Expr> i = window_indices(w, o, r);
      const Val v = padded_element(b, x, w.rank(), i, lowest);
      const Val here = b.index(plane_position(l.context(), x, w.rank(), i));
      if (is_first) {
        best = v;
        at = here;
        is_first = false;
        return;
      }
      // While nothing but padding or minus infinity was seen, a position inside replaces one
      // outside, so that the result is always inside.
      Val better = b.logical_or(b.binary(Opcode::greater, v, best), b.unary(Opcode::is_nan, v));
      for (std::size_t d = 0; d < w.rank(); ++d) {
        const std::size_t dim = x.rank() - w.rank() + d;
        if (w.padding[d] == 0) continue;
        const std::vector<Expr> first =
            window_indices(w, o, std::vector<Expr>(w.rank(), l.context().constant(0)));
        const Val outside = b.less(b.index(first[dim]), b.constant(DType::i64, std::int64_t{0}));
        const Val none = b.binary(Opcode::equal, best, b.constant(b.dtype(best), lowest));
        better = b.logical_or(better, b.logical_and(outside, none));
      }
      best = b.select(better, v, best);
      at = b.select(better, here, at);
    });
    return at;
  });
}

template <std::size_t rank>
void lower_max_pool(Lowering& l) {
  const Tensor& x = l.tensor(0);
  const Window w = window_of<Pool::max, rank>(l.args());
  const Sizes& sizes = l.result_type().sizes;
  const DType compute = abi::compute_type(x.dtype);
  const double lowest = -std::numeric_limits<double>::infinity();
  const auto term = [&](BodyBuilder& b, Indices o, Indices r) {
    return padded_element(b, x, rank, window_indices(w, o, r), lowest);
  };
  const bool unrolled = w.count() <= kUnrolledWindow;
  const Sizes reduced = extents(l.context(), w);
  if (unrolled) {
    l.result(l.pointwise(sizes, x.dtype, [&](BodyBuilder& b, Indices o) {
      std::optional<Val> top;
      for_each_position(l.context(), w, [&](Indices r) {
        const Val v = term(b, o, r);
        top = top ? b.max(*top, v) : v;
      });
      return *top;
    }));
  } else {
    l.result(l.reduce(ReduceOp::max, sizes, reduced, compute, {x.dtype}, term)[0]);
  }
  if (l.node().results.size() == 1 || !l.is_used(1)) return;
  if (unrolled) {
    l.result(1, unrolled_argmax(l, x, w, sizes));
    return;
  }
  const Tensor position =
      l.reduce(ReduceOp::argmax, sizes, reduced, compute, {DType::i64}, term)[0];
  l.result(1, l.pointwise(sizes, DType::i64, [&](BodyBuilder& b, Indices o) {
    const Expr at = b.indirect(l.element(b, position, o), sym::product(l.context(), reduced));
    const std::vector<Expr> i = window_indices(w, o, unflatten(reduced, at));
    return b.index(plane_position(l.context(), x, rank, i));
  }));
}

template <std::size_t rank>
void lower_average_pool(Lowering& l) {
  const Tensor& x = l.tensor(0);
  const Window w = window_of<Pool::average, rank>(l.args());
  const Sizes& sizes = l.result_type().sizes;
  const std::size_t first = x.rank() - rank;
  const DType compute = abi::compute_type(x.dtype);
  const auto term = [&](BodyBuilder& b, Indices o, Indices r) {
    return padded_element(b, x, rank, window_indices(w, o, r), 0);
  };
  const auto divided = [&](BodyBuilder& b, Indices o, Val sum) {
    if (w.divisor) return b.div(sum, b.constant(compute, *w.divisor));
    Expr count = l.context().constant(1);
    for (std::size_t d = 0; d < rank; ++d) {
      count = count * counted(w, d, o[first + d], x.sizes[first + d]);
    }
    return b.div(sum, b.cast(b.index(count), compute));
  };
  if (w.count() <= kUnrolledWindow) {
    l.result(l.pointwise(sizes, x.dtype, [&](BodyBuilder& b, Indices o) {
      Val sum = b.constant(compute, 0.0);
      for_each_position(l.context(), w, [&](Indices r) { sum = b.add(sum, term(b, o, r)); });
      return divided(b, o, sum);
    }));
    return;
  }
  const Tensor sum =
      l.reduce(ReduceOp::sum, sizes, extents(l.context(), w), compute, {compute}, term)[0];
  l.result(l.pointwise(sizes, x.dtype, [&](BodyBuilder& b, Indices o) {
    return divided(b, o, l.element(b, sum, o));
  }));
}

// Calls f(output position, row-major positions in the input, in window order) for each result.
template <class F>
void reference_windows(const RefTensor& x, const RefTensor& y, const Window& w, const F& f) {
  const std::size_t first = x.rank() - w.rank();
  for_each_index(y.sizes, [&](std::span<const std::int64_t> o, std::size_t position) {
    std::vector<std::size_t> inside;
    for_each_index(w.kernel, [&](std::span<const std::int64_t> r, std::size_t) {
      std::vector<std::int64_t> i(o.begin(), o.end());
      for (std::size_t d = 0; d < w.rank(); ++d) {
        i[first + d] = o[first + d] * w.stride[d] - w.padding[d] + r[d] * w.dilation[d];
        if (i[first + d] < 0 || i[first + d] >= x.sizes[first + d]) return;
      }
      inside.push_back(x.at(i));
    });
    f(o, position, inside);
  });
}
template <std::size_t rank>
void reference_max_pool(Evaluation& e) {
  const RefTensor& x = e.tensor(0);
  std::int64_t plane = 1;
  for (std::size_t d = x.rank() - rank; d < x.rank(); ++d) plane *= x.sizes[d];
  reference_windows(x, e.result(), window_of<Pool::max, rank>(e),
                    [&](auto, std::size_t p, const std::vector<std::size_t>& inside) {
                      std::size_t best = inside.front();
                      for (const std::size_t j : inside) {
                        if (x.real(j) > x.real(best) || std::isnan(x.real(j))) best = j;
                      }
                      e.result().set(p, x.real(best));
                      if (e.result_count() == 1) return;
                      e.result(1).set(p, static_cast<std::int64_t>(best) % plane);
                    });
}
template <std::size_t rank>
void reference_average_pool(Evaluation& e) {
  const RefTensor& x = e.tensor(0);
  const Window w = window_of<Pool::average, rank>(e);
  reference_windows(
      x, e.result(), w,
      [&](std::span<const std::int64_t> o, std::size_t p, const std::vector<std::size_t>& inside) {
        double sum = 0, count = 1;
        for (const std::size_t j : inside) sum += x.real(j);
        for (std::size_t d = 0; d < rank; ++d) {
          const std::size_t dim = x.rank() - rank + d;
          const std::int64_t start = o[dim] * w.stride[d] - w.padding[d];
          const std::int64_t end = std::min(start + w.kernel[d], x.sizes[dim] + w.padding[d]);
          count *= static_cast<double>(end - start);
        }
        if (!w.count_include_pad) count = static_cast<double>(inside.size());
        e.result().set(p, sum / w.divisor.value_or(count));
      });
}

// --- Rows

template <std::size_t rank>
Argument plane(SampleBuilder& s) {
  std::vector<Expr> sizes = {s.size(2), s.constant(3)};
  for (std::size_t d = 0; d < rank; ++d) sizes.push_back(s.size(9 - static_cast<int>(d)));
  return s.tensor(std::move(sizes));
}
std::vector<Expr> same(SampleBuilder& s, std::size_t rank, std::int64_t value) {
  return std::vector<Expr>(rank, s.constant(value));
}
// An image of one pixel: most of a window lies outside.
template <std::size_t rank>
Argument pixel(SampleBuilder& s) {
  std::vector<Expr> sizes = same(s, rank, 1);
  sizes.insert(sizes.begin(), {s.size(2), s.constant(3)});
  return s.tensor(std::move(sizes));
}
template <std::size_t rank>
std::vector<Sample> samples_max() {
  return {{"pixel",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {pixel<rank>(s),   same(s, rank, 3), same(s, rank, 1),
                     same(s, rank, 1), same(s, rank, 1), false};
           },
           {DType::f32},
           true},
          {"padded",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {plane<rank>(s),   same(s, rank, 3), same(s, rank, 2),
                     same(s, rank, 1), same(s, rank, 1), false};
           },
           float_dtypes(), true},
          {"ceil",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {plane<rank>(s),   same(s, rank, 2), same(s, rank, 3),
                     same(s, rank, 0), same(s, rank, 1), true};
           },
           float_dtypes(), true},
          {"large",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {plane<rank>(s),   same(s, rank, 6), same(s, rank, 1),
                     same(s, rank, 2), same(s, rank, 1), false};
           },
           float_dtypes(), true}};
}
template <std::size_t rank>
std::vector<Sample> samples_average() {
  return {
      {"pixel",
       [](SampleBuilder& s) -> std::vector<Argument> {
         return {pixel<rank>(s), same(s, rank, 3), same(s, rank, 1), same(s, rank, 1), false,
                 false};
       },
       {DType::f32},
       true},
      {"padded",
       [](SampleBuilder& s) -> std::vector<Argument> {
         return {plane<rank>(s), same(s, rank, 3), same(s, rank, 2), same(s, rank, 1), true, false};
       },
       float_dtypes(), true},
      {"large",
       [](SampleBuilder& s) -> std::vector<Argument> {
         return {plane<rank>(s), same(s, rank, 6), same(s, rank, 1), same(s, rank, 2), false, true};
       },
       float_dtypes(), true}};
}
constexpr std::string_view kSchemaMax =
    "(self: tensor, kernel_size: integer_list, stride: integer_list = [], "
    "padding: integer_list = [0], dilation: integer_list = [1], ceil_mode: boolean = false) "
    "-> tensor";
constexpr std::string_view kSchemaMaxIndices =
    "(self: tensor, kernel_size: integer_list, stride: integer_list = [], "
    "padding: integer_list = [0], dilation: integer_list = [1], ceil_mode: boolean = false) "
    "-> tensor, tensor";
constexpr std::string_view kSchemaAverage1 =
    "(self: tensor, kernel_size: integer_list, stride: integer_list = [], "
    "padding: integer_list = [0], ceil_mode: boolean = false, "
    "count_include_pad: boolean = true) -> tensor";
constexpr std::string_view kSchemaAverage =
    "(self: tensor, kernel_size: integer_list, stride: integer_list = [], "
    "padding: integer_list = [0], ceil_mode: boolean = false, count_include_pad: boolean = true, "
    "divisor_override: optional_integer = none) -> tensor";

template <std::size_t rank, bool with_indices>
constexpr OpDef max_row(std::string_view name, std::string_view aten) {
  return {.name = name,
          .schema = with_indices ? kSchemaMaxIndices : kSchemaMax,
          .doc = "Largest element of each window; a NaN wins.",
          .traits = Trait::reduction,
          .infer = infer_pool < Pool::max,
          rank,
          with_indices ? 2 : 1 >,
          .lower = lower_max_pool<rank>,
          .reference = reference_max_pool<rank>,
          .aten = aten,
          .samples = samples_max<rank>};
}
template <std::size_t rank>
constexpr OpDef average_row(std::string_view name, std::string_view aten) {
  return {.name = name,
          .schema = rank == 1 ? kSchemaAverage1 : kSchemaAverage,
          .doc = "Mean of each window.",
          .traits = Trait::reduction,
          .infer = infer_pool<Pool::average, rank, 1>,
          .lower = lower_average_pool<rank>,
          .reference = reference_average_pool<rank>,
          .aten = aten,
          .samples = samples_average<rank>};
}
constexpr OpDef kPooling[] = {
    average_row<1>("avg_pool1d", "aten::avg_pool1d"),
    average_row<2>("avg_pool2d", "aten::avg_pool2d"),
    average_row<3>("avg_pool3d", "aten::avg_pool3d"),
    max_row<1, false>("max_pool1d", "aten::max_pool1d"),
    max_row<2, false>("max_pool2d", "aten::max_pool2d"),
    max_row<2, true>("max_pool2d_with_indices", "aten::max_pool2d_with_indices"),
    max_row<3, false>("max_pool3d", "aten::max_pool3d"),
    max_row<3, true>("max_pool3d_with_indices", "aten::max_pool3d_with_indices"),
};

}  // namespace

std::span<const OpDef> pooling_ops() { return kPooling; }

}  // namespace inkle::ops
