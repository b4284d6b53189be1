// Windows as columns and back.
#include <algorithm>

#include "base/error.h"
#include "ops/axes.h"
#include "ops/infer.h"
#include "ops/samples.h"
#include "ops/table.h"

namespace inkle::ops {
namespace {

using graph::Argument;
using graph::OpDef;
using graph::Sample;
using infer::Types;

// --- im2col: (self, kernel, dilation, padding, stride); col2im has output_size before them

struct Columns {
  std::vector<std::int64_t> kernel, dilation, padding, stride;

  [[nodiscard]] std::int64_t window() const { return kernel[0] * kernel[1]; }
  // Windows along dimension d of an image of `size`.
  [[nodiscard]] Expr count(std::size_t d, Expr size) const {
    return floordiv(size + (2 * padding[d] - dilation[d] * (kernel[d] - 1) - 1), stride[d]) + 1;
  }
};
Columns columns_at(const Inference& in, std::size_t first) {
  return {spatial_list(in, first, 2, 1), spatial_list(in, first + 1, 2, 1),
          spatial_list(in, first + 2, 2, 0), spatial_list(in, first + 3, 2, 1)};
}
void check_columns(const Inference& in, const Columns& c) {
  for (const auto* list : {&c.kernel, &c.dilation, &c.stride}) {
    if (std::min((*list)[0], (*list)[1]) <= 0) in.fail("sizes of windows are positive");
  }
}

Types infer_im2col(Inference& in) {
  const Type& x = float_tensor(in, 0);
  if (x.rank() != 4) unsupported("im2col: needs a batch");
  const Columns c = columns_at(in, 1);
  check_columns(in, c);
  return {infer::make(
      x, x.dtype,
      {x.sizes[0], x.sizes[1] * c.window(), c.count(0, x.sizes[2]) * c.count(1, x.sizes[3])})};
}
// True where 0 <= at < extent.
Val within(BodyBuilder& b, Expr at, Expr extent) {
  const Val low =
      b.binary(Opcode::greater_equal, b.index(at), b.constant(DType::i64, std::int64_t{0}));
  return b.logical_and(low, b.less(b.index(at), b.index(extent)));
}
void lower_im2col(Lowering& l) {
  const Tensor& x = l.tensor(0);
  const Columns c = columns_at(l.args(), 1);
  const Expr across = c.count(1, x.sizes[3]);
  l.result(l.pointwise(l.result_type().sizes, x.dtype, [&](BodyBuilder& b, Indices i) {
    const Expr channel = floordiv(i[1], c.window());
    const Expr k[2] = {mod(floordiv(i[1], c.kernel[1]), c.kernel[0]), mod(i[1], c.kernel[1])};
    const Expr o[2] = {floordiv(i[2], across), mod(i[2], across)};
    std::vector<Expr> at = {i[0], channel};
    Val inside = b.constant(DType::boolean, std::int64_t{1});
    for (std::size_t d = 0; d < 2; ++d) {
      at.push_back(o[d] * c.stride[d] - c.padding[d] + k[d] * c.dilation[d]);
      inside = b.logical_and(inside, within(b, at.back(), x.sizes[d + 2]));
    }
    return b.load_if(inside, b.constant(x.dtype, 0.0), x.buffer, x.dtype, x.buffer_indices(at));
  }));
}
void reference_im2col(Evaluation& e) {
  const RefTensor& x = e.tensor(0);
  const auto kernel = e.integers(1), dilation = e.integers(2), padding = e.integers(3),
             stride = e.integers(4);
  const std::int64_t across =
      (x.sizes[3] + 2 * padding[1] - dilation[1] * (kernel[1] - 1) - 1) / stride[1] + 1;
  for_each_index(e.result().sizes, [&](std::span<const std::int64_t> i, std::size_t p) {
    const std::int64_t row = i[1] / kernel[1] % kernel[0], column = i[1] % kernel[1];
    const std::int64_t h = i[2] / across * stride[0] - padding[0] + row * dilation[0];
    const std::int64_t w = i[2] % across * stride[1] - padding[1] + column * dilation[1];
    if (h < 0 || w < 0 || h >= x.sizes[2] || w >= x.sizes[3]) return;
    const std::vector<std::int64_t> at = {i[0], i[1] / (kernel[0] * kernel[1]), h, w};
    e.result().set(p, x.real(x.at(at)));
  });
}

Types infer_col2im(Inference& in) {
  const Type& x = float_tensor(in, 0);
  if (x.rank() != 3) unsupported("col2im: needs a batch");
  const Columns c = columns_at(in, 2);
  check_columns(in, c);
  const std::vector<Expr> output = in.integers(1);
  if (output.size() != 2) in.fail("output_size has the wrong length");
  const Expr count = c.count(0, output[0]) * c.count(1, output[1]);
  if (!in.context().guard_equal(x.sizes[2], count)) in.fail("columns do not fit output_size");
  return {infer::make(x, x.dtype,
                      {x.sizes[0], floordiv(x.sizes[1], c.window()), output[0], output[1]})};
}
// Every pixel sums the columns that contain it: no two writes collide.
void lower_col2im(Lowering& l) {
  const Tensor& x = l.tensor(0);
  const Columns c = columns_at(l.args(), 2);
  const Sizes& sizes = l.result_type().sizes;
  const DType compute = abi::compute_type(x.dtype);
  const Expr count[2] = {c.count(0, sizes[2]), c.count(1, sizes[3])};
  const Sizes reduced = {l.context().constant(c.kernel[0]), l.context().constant(c.kernel[1])};
  l.result(l.reduce(
      loop::ReduceOp::sum, sizes, reduced, compute, {x.dtype},
      [&](BodyBuilder& b, Indices i, Indices k) {
        Val inside = b.constant(DType::boolean, std::int64_t{1});
        Expr window[2];
        for (std::size_t d = 0; d < 2; ++d) {
          const Expr reached = i[d + 2] + c.padding[d] - k[d] * c.dilation[d];
          window[d] = floordiv(reached, c.stride[d]);
          const Val on_stride = b.binary(Opcode::equal, b.index(mod(reached, c.stride[d])),
                                         b.constant(DType::i64, std::int64_t{0}));
          inside = b.logical_and(inside, b.logical_and(on_stride, within(b, window[d], count[d])));
        }
        const std::vector<Expr> at = {i[0], (i[1] * c.kernel[0] + k[0]) * c.kernel[1] + k[1],
                                      window[0] * count[1] + window[1]};
        return b.cast(
            b.load_if(inside, b.constant(x.dtype, 0.0), x.buffer, x.dtype, x.buffer_indices(at)),
            compute);
      })[0]);
}
void reference_col2im(Evaluation& e) {
  const RefTensor& x = e.tensor(0);
  RefTensor& y = e.result();
  const auto kernel = e.integers(2), dilation = e.integers(3), padding = e.integers(4),
             stride = e.integers(5);
  const std::int64_t across =
      (y.sizes[3] + 2 * padding[1] - dilation[1] * (kernel[1] - 1) - 1) / stride[1] + 1;
  for_each_index(x.sizes, [&](std::span<const std::int64_t> i, std::size_t p) {
    const std::int64_t row = i[1] / kernel[1] % kernel[0], column = i[1] % kernel[1];
    const std::int64_t h = i[2] / across * stride[0] - padding[0] + row * dilation[0];
    const std::int64_t w = i[2] % across * stride[1] - padding[1] + column * dilation[1];
    if (h < 0 || w < 0 || h >= y.sizes[2] || w >= y.sizes[3]) return;
    const std::vector<std::int64_t> at = {i[0], i[1] / (kernel[0] * kernel[1]), h, w};
    y.set(y.at(at), y.real(y.at(at)) + x.real(p));
  });
}

std::vector<Expr> pair(SampleBuilder& s, std::int64_t a, std::int64_t b) {
  return {s.constant(a), s.constant(b)};
}
std::vector<Sample> samples_im2col() {
  return {{"padded",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {s.tensor({s.size(2), s.constant(3), s.constant(7), s.constant(6)}),
                     pair(s, 3, 2), pair(s, 1, 2), pair(s, 1, 0), pair(s, 2, 1)};
           },
           float_dtypes(), true}};
}
std::vector<Sample> samples_col2im() {
  // 4 windows down and 4 across, of 3 * 2 elements in 3 channels.
  return {{"padded",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {s.tensor({s.size(2), s.constant(18), s.constant(16)}),
                     pair(s, 7, 6),
                     pair(s, 3, 2),
                     pair(s, 1, 2),
                     pair(s, 1, 0),
                     pair(s, 2, 1)};
           },
           float_dtypes(), true}};
}
constexpr OpDef kWindow[] = {
    {.name = "col2im",
     .schema = "(self: tensor, output_size: integer_list, kernel_size: integer_list, "
               "dilation: integer_list, padding: integer_list, stride: integer_list) -> tensor",
     .doc = "Sums columns of windows into an image.",
     .infer = infer_col2im,
     .lower = lower_col2im,
     .reference = reference_col2im,
     .aten = "aten::col2im",
     .samples = samples_col2im},
    {.name = "im2col",
     .schema = "(self: tensor, kernel_size: integer_list, dilation: integer_list, "
               "padding: integer_list, stride: integer_list) -> tensor",
     .doc = "The windows of an image as columns.",
     .infer = infer_im2col,
     .lower = lower_im2col,
     .reference = reference_im2col,
     .aten = "aten::im2col",
     .samples = samples_im2col},
};

}  // namespace

std::span<const OpDef> window_ops() { return kWindow; }

}  // namespace inkle::ops
