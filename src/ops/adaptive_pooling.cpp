// Average pooling to a given number of windows, whose sizes may differ by one.
#include "ops/axes.h"
#include "ops/infer.h"
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

// (self, output_size)

template <std::size_t rank>
Types infer_adaptive(Inference& in) {
  const Type& x = float_tensor(in, 0);
  if (x.rank() != rank + 1 && x.rank() != rank + 2) in.fail("the input has the wrong rank");
  const std::vector<Expr> output = in.integers(1);
  if (output.size() != rank) in.fail("output_size has the wrong length");
  Sizes sizes(x.sizes.begin(), x.sizes.end() - rank);
  sizes.insert(sizes.end(), output.begin(), output.end());
  return {infer::make(x, x.dtype, std::move(sizes))};
}

// Window o of `count` along a dimension of `size`: floor(o * size / count) to the ceiling of
// (o + 1) * size / count. `count` is at least 1: of no windows nothing is asked.
struct Slices {
  Expr size, count;

  [[nodiscard]] Expr start(Expr o) const {
    return count.is_constant(1) ? o.context().constant(0) : floordiv(o * size, count);
  }
  [[nodiscard]] Expr length(Expr o) const {
    if (is_even()) return floordiv(size, count);
    return ceildiv((o + 1) * size, count) - start(o);
  }
  [[nodiscard]] bool is_even() const { return sym::divides(count, size); }
  // At least every length: o * size / count has a fraction below 1 at either end.
  [[nodiscard]] Expr longest() const {
    return is_even() ? floordiv(size, count) : ceildiv(size, count) + 1;
  }
};

template <std::size_t rank>
void lower_adaptive(Lowering& l) {
  const Tensor& x = l.tensor(0);
  const Sizes& sizes = l.result_type().sizes;
  const std::size_t first = x.rank() - rank;
  const DType compute = abi::compute_type(x.dtype);
  std::vector<Slices> slices;
  Sizes reduced;
  for (std::size_t d = first; d < x.rank(); ++d) {
    slices.push_back({x.sizes[d], max(sizes[d], l.context().constant(1))});
    reduced.push_back(slices.back().longest());
  }
  const auto term = [&](BodyBuilder& b, Indices o, Indices r) {
    std::vector<Expr> i(o.begin(), o.end());
    Val inside = b.constant(DType::boolean, std::int64_t{1});
    for (std::size_t d = 0; d < rank; ++d) {
      const Expr at = o[first + d];
      i[first + d] = slices[d].start(at) + r[d];
      if (slices[d].is_even()) continue;
      inside = b.logical_and(inside, b.less(b.index(r[d]), b.index(slices[d].length(at))));
    }
    return b.cast(
        b.load_if(inside, b.constant(x.dtype, 0.0), x.buffer, x.dtype, x.buffer_indices(i)),
        compute);
  };
  const Tensor sum = l.reduce(ReduceOp::sum, sizes, reduced, compute, {compute}, term)[0];
  l.result(l.pointwise(sizes, x.dtype, [&](BodyBuilder& b, Indices o) {
    Expr count = l.context().constant(1);
    for (std::size_t d = 0; d < rank; ++d) count = count * slices[d].length(o[first + d]);
    return b.div(l.element(b, sum, o), b.cast(b.index(count), compute));
  }));
}
template <std::size_t rank>
void reference_adaptive(Evaluation& e) {
  const RefTensor& x = e.tensor(0);
  RefTensor& y = e.result();
  const std::size_t first = x.rank() - rank;
  for_each_index(y.sizes, [&](std::span<const std::int64_t> o, std::size_t p) {
    double sum = 0, count = 0;
    for (std::size_t j = 0; j < x.count(); ++j) {
      std::size_t rest = j;
      bool inside = true;
      for (std::size_t d = x.rank(); d-- > 0;) {
        const auto size = static_cast<std::size_t>(x.sizes[d]);
        const auto i = static_cast<std::int64_t>(rest % size);
        rest /= size;
        const std::int64_t n = y.sizes[d];
        inside = inside && (d < first ? i == o[d]
                                      : i >= o[d] * x.sizes[d] / n &&
                                            i < ((o[d] + 1) * x.sizes[d] + n - 1) / n);
      }
      if (!inside) continue;
      sum += x.real(j);
      count += 1;
    }
    y.set(p, sum / count);
  });
}

template <std::size_t rank>
Argument plane(SampleBuilder& s) {
  std::vector<Expr> sizes = {s.size(2), s.constant(3)};
  for (std::size_t d = 0; d < rank; ++d) sizes.push_back(s.size(9 - static_cast<int>(d)));
  return s.tensor(std::move(sizes));
}
std::vector<Expr> same(SampleBuilder& s, std::size_t rank, std::int64_t value) {
  return std::vector<Expr>(rank, s.constant(value));
}
template <std::size_t rank>
std::vector<Sample> samples_adaptive() {
  return {{"one",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {plane<rank>(s), same(s, rank, 1)};
           },
           float_dtypes()},
          {"none",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {plane<rank>(s), same(s, rank, 0)};
           },
           {DType::f32}},
          {"uneven",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {plane<rank>(s), same(s, rank, 4)};
           },
           float_dtypes(), true}};
}

template <std::size_t rank>
constexpr OpDef adaptive_row(std::string_view name, std::string_view aten) {
  return {.name = name,
          .schema = "(self: tensor, output_size: integer_list) -> tensor",
          .doc = "Means of windows that split each dimension into output_size parts.",
          .traits = Trait::reduction,
          .infer = infer_adaptive<rank>,
          .lower = lower_adaptive<rank>,
          .reference = reference_adaptive<rank>,
          .aten = aten,
          .samples = samples_adaptive<rank>};
}

constexpr OpDef kAdaptivePooling[] = {
    adaptive_row<1>("adaptive_avg_pool1d", "aten::adaptive_avg_pool1d"),
    adaptive_row<2>("adaptive_avg_pool2d", "aten::_adaptive_avg_pool2d aten::adaptive_avg_pool2d"),
    adaptive_row<3>("adaptive_avg_pool3d", "aten::_adaptive_avg_pool3d aten::adaptive_avg_pool3d"),
};

}  // namespace

std::span<const OpDef> adaptive_pooling_ops() { return kAdaptivePooling; }

}  // namespace inkle::ops
