// Convolutions of 1 to 3 spatial dimensions. Sizes follow ATen; the loop IR has one node for all of
// them, transposed ones included.
#include "base/error.h"
#include "ops/axes.h"
#include "ops/composite_reference.h"
#include "ops/infer.h"
#include "ops/samples.h"
#include "ops/table.h"

namespace inkle::ops {
namespace {

using graph::Argument;
using graph::Builder;
using graph::Node;
using graph::OpDef;
using graph::Sample;
using graph::Trait;
using graph::ValueId;
using infer::Types;

// aten::convolution: (input, weight, bias?, stride, padding, dilation, transposed, output_padding,
// groups).
constexpr std::size_t kFirstParameter = 3;

// Output sizes of the spatial dimensions, from input x over (n, c, spatial...) and weight w.
Sizes convolved(Inference& in, const Type& x, const Type& w, const loop::Convolution& c) {
  Sizes sizes = {x.sizes[0], c.transposed ? w.sizes[1] * c.groups : w.sizes[0]};
  for (std::size_t d = 0; d < c.stride.size(); ++d) {
    if (c.stride[d] <= 0 || c.dilation[d] <= 0) in.fail("strides and dilations are positive");
    const Expr reach = (w.sizes[d + 2] - 1) * c.dilation[d] + 1;
    const Expr size = x.sizes[d + 2];
    sizes.push_back(c.transposed
                        ? (size - 1) * c.stride[d] - 2 * c.padding[d] + reach + c.output_padding[d]
                        : floordiv(size + 2 * c.padding[d] - reach, c.stride[d]) + 1);
    if (sym::bounds(sizes.back()).high < 0) in.fail("the kernel is larger than the input");
  }
  return sizes;
}

Types infer_convolution(Inference& in) {
  const Type &x = float_tensor(in, 0), &w = float_tensor(in, 1);
  if (x.rank() < 3 || x.rank() > 5) unsupported("convolution: 1 to 3 spatial dimensions");
  if (w.rank() != x.rank()) in.fail("ranks of input and weight differ");
  if (w.dtype != x.dtype) in.fail("dtypes of input and weight differ");
  const loop::Convolution c = convolution_parameters(in, kFirstParameter, x.rank() - 2);
  if (c.groups <= 0) in.fail("groups is positive");
  const Expr channels = c.transposed ? w.sizes[0] : w.sizes[1] * c.groups;
  if (!in.context().guard_equal(x.sizes[1], channels)) in.fail("channels do not fit the weight");
  if (x.dtype == DType::f64 && c.transposed) unsupported("convolution: transposed in f64");
  if (const Type* bias = in.optional_tensor(2)) {
    if (bias->rank() != 1 || bias->dtype != x.dtype) in.fail("the bias does not fit");
  }
  return {infer::make(x, x.dtype, convolved(in, x, w, c))};
}

// y[n, o, p...] = sum over channel and window of x * w, as a plain reduction: for dtypes that no
// library takes.
Tensor convolve_by_sum(Lowering& l, const Tensor& x, const Tensor& w, const Tensor* bias,
                       const loop::Convolution& c, const Sizes& sizes) {
  const std::size_t spatial = c.stride.size();
  const Expr group_outputs = floordiv(w.sizes[0], c.groups);
  const Sizes reduced(w.sizes.begin() + 1, w.sizes.end());
  Tensor sum = l.reduce(
      loop::ReduceOp::sum, sizes, reduced, x.dtype, {x.dtype},
      [&](BodyBuilder& b, Indices o, Indices r) {
        std::vector<Expr> ix = {o[0], floordiv(o[1], group_outputs) * w.sizes[1] + r[0]};
        std::vector<Expr> iw = {o[1], r[0]};
        Val inside = b.constant(DType::boolean, std::int64_t{1});
        for (std::size_t d = 0; d < spatial; ++d) {
          const Expr at = o[d + 2] * c.stride[d] + r[d + 1] * c.dilation[d] - c.padding[d];
          ix.push_back(at);
          iw.push_back(r[d + 1]);
          const Val position = b.index(at);
          inside =
              b.logical_and(inside, b.logical_and(b.binary(Opcode::greater_equal, position,
                                                           b.constant(DType::i64, std::int64_t{0})),
                                                  b.less(position, b.index(x.sizes[d + 2]))));
        }
        const Val loaded =
            b.load_if(inside, b.constant(x.dtype, 0.0), x.buffer, x.dtype, x.buffer_indices(ix));
        return b.mul(loaded, l.element(b, w, iw));
      })[0];
  if (bias == nullptr) return sum;
  return l.pointwise(sizes, x.dtype, [&](BodyBuilder& b, Indices i) {
    return b.add(l.element(b, sum, i), l.element(b, *bias, i.subspan(1, 1)));
  });
}

void lower_convolution(Lowering& l) {
  const Tensor &x = l.tensor(0), &w = l.tensor(1);
  const loop::Convolution c = convolution_parameters(l.args(), kFirstParameter, x.rank() - 2);
  const Sizes& sizes = l.result_type().sizes;
  if (x.dtype == DType::f64) {
    l.result(convolve_by_sum(l, x, w, l.optional_tensor(2), c, sizes));
  } else {
    l.result(l.convolution(x, w, l.optional_tensor(2), c, sizes, x.dtype));
  }
}

// y[n, o, p...]: every input position and weight that reach an output position.
void reference_convolution(Evaluation& e) {
  const RefTensor &x = e.tensor(0), &w = e.tensor(1);
  const RefTensor* bias = e.optional_tensor(2);
  const std::size_t spatial = x.rank() - 2;
  const auto list = [&](std::size_t arg, std::int64_t otherwise) {
    std::vector<std::int64_t> v = e.integers(arg);
    if (v.empty()) v.push_back(otherwise);
    if (v.size() == 1) v.resize(spatial, v[0]);
    return v;
  };
  const auto stride = list(3, 1), padding = list(4, 0), dilation = list(5, 1);
  const bool transposed = e.boolean(6);
  const std::int64_t groups = e.integer(8);
  RefTensor& y = e.result();
  const std::int64_t out_channels = y.sizes[1], in_channels = x.sizes[1];
  // Over (n, input channel, output channel of the group, input position..., window...) of the
  // smaller side: `far` is where near * stride - padding + window * dilation lands.
  std::vector<std::int64_t> space = {x.sizes[0], in_channels, out_channels / groups};
  const RefTensor& near = transposed ? x : y;
  const RefTensor& far = transposed ? y : x;
  space.insert(space.end(), near.sizes.begin() + 2, near.sizes.end());
  space.insert(space.end(), w.sizes.begin() + 2, w.sizes.end());
  for_each_index(space, [&](std::span<const std::int64_t> i, std::size_t) {
    const std::int64_t group = i[1] / (in_channels / groups);
    const std::int64_t o = group * (out_channels / groups) + i[2];
    std::vector<std::int64_t> at_near = {i[0], transposed ? i[1] : o};
    std::vector<std::int64_t> at_far = {i[0], transposed ? o : i[1]};
    std::vector<std::int64_t> at_w =
        transposed ? std::vector{i[1], i[2]} : std::vector{o, i[1] % (in_channels / groups)};
    for (std::size_t d = 0; d < spatial; ++d) {
      const std::int64_t k = i[3 + spatial + d];
      at_near.push_back(i[3 + d]);
      at_far.push_back(i[3 + d] * stride[d] - padding[d] + k * dilation[d]);
      at_w.push_back(k);
      if (at_far.back() < 0 || at_far.back() >= far.sizes[d + 2]) return;
    }
    const std::size_t out = y.at(transposed ? at_far : at_near);
    y.set(out, y.real(out) + x.real(x.at(transposed ? at_near : at_far)) * w.real(w.at(at_w)));
  });
  if (bias == nullptr) return;
  for_each_index(y.sizes, [&](std::span<const std::int64_t> i, std::size_t p) {
    y.set(p, y.real(p) + bias->real(static_cast<std::size_t>(i[1])));
  });
}

// --- Composites: conv1d, conv2d, conv3d, conv_transpose*, padding as a word

// Where a composite keeps the arguments of aten::convolution; -1: the default.
struct Order {
  std::size_t stride = 3, padding = 4, dilation = 5, groups = 6;
  int output_padding = -1;
  bool transposed = false;
};
constexpr Order kForward{};
constexpr Order kTransposed{.dilation = 7, .groups = 6, .output_padding = 5, .transposed = true};

// Padding as a word: "valid" is none, "same" keeps sizes (stride 1, an odd reach).
std::vector<std::int64_t> word_padding(const Inference& in, const Order& order, const Type& w) {
  const std::size_t spatial = w.rank() - 2;
  std::vector<std::int64_t> padding(spatial, 0);
  if (in.string(order.padding) == "valid") return padding;
  const auto dilation = spatial_list(in, order.dilation, spatial, 1);
  for (std::size_t d = 0; d < spatial; ++d) {
    const auto window = w.sizes[d + 2].constant();
    if (!window) unsupported("convolution: padding 'same' with a symbolic kernel");
    const std::int64_t total = (*window - 1) * dilation[d];
    if (total % 2 != 0) unsupported("convolution: padding 'same' that is not symmetric");
    padding[d] = total / 2;
  }
  return padding;
}
loop::Convolution composite_parameters(const Inference& in, const Order& order, const Type& w) {
  const std::size_t spatial = w.rank() - 2;
  loop::Convolution c;
  c.stride = spatial_list(in, order.stride, spatial, 1);
  c.padding = std::holds_alternative<std::string>(in.arg(order.padding))
                  ? word_padding(in, order, w)
                  : spatial_list(in, order.padding, spatial, 0);
  c.dilation = spatial_list(in, order.dilation, spatial, 1);
  c.output_padding =
      order.output_padding < 0
          ? std::vector<std::int64_t>(spatial, 0)
          : spatial_list(in, static_cast<std::size_t>(order.output_padding), spatial, 0);
  c.groups = in.constant_integer(order.groups);
  c.transposed = order.transposed;
  return c;
}
template <Order order>
Types infer_composite(Inference& in) {
  const Type &x = float_tensor(in, 0), &w = float_tensor(in, 1);
  if (w.rank() < 3 || w.rank() > 5) in.fail("the weight has the wrong rank");
  if (x.rank() != w.rank() && x.rank() + 1 != w.rank()) in.fail("the input has the wrong rank");
  if (w.dtype != x.dtype) in.fail("dtypes of input and weight differ");
  const loop::Convolution c = composite_parameters(in, order, w);
  Type batched = x;
  if (x.rank() < w.rank()) batched.sizes.insert(batched.sizes.begin(), in.context().constant(1));
  Sizes sizes = convolved(in, batched, w, c);
  if (x.rank() < w.rank()) sizes.erase(sizes.begin());
  return {infer::make(x, x.dtype, std::move(sizes))};
}
template <Order order>
std::vector<ValueId> decompose_composite(Builder& b, const Node& node) {
  const Inference in(b.graph(), *node.op, node.args);
  const ValueId x = std::get<ValueId>(node.args[0]), w = std::get<ValueId>(node.args[1]);
  const loop::Convolution c = composite_parameters(in, order, b.type(w));
  const auto list = [&](const std::vector<std::int64_t>& values) {
    std::vector<Expr> exprs;
    for (const std::int64_t value : values) exprs.push_back(b.integer(value));
    return exprs;
  };
  const bool batched = b.type(x).rank() == b.type(w).rank();
  const ValueId y =
      b.node("convolution", {batched ? x : b.node("unsqueeze", {x, b.integer(0)}), w, node.args[2],
                             list(c.stride), list(c.padding), list(c.dilation), c.transposed,
                             list(c.output_padding), b.integer(c.groups)});
  return {batched ? y : b.node("squeeze_dims", {y, std::vector<Expr>{b.integer(0)}})};
}

std::vector<Sample> samples_convolution() {
  return {{"padded",
           [](SampleBuilder& s) -> std::vector<Argument> {
             const auto two = [&](std::int64_t v) { return std::vector<Expr>(2, s.constant(v)); };
             return {s.tensor({s.size(2), s.constant(4), s.size(9), s.size(7)}),
                     s.tensor({s.constant(6), s.constant(4), s.constant(3), s.constant(3)}),
                     s.tensor({s.constant(6)}),
                     two(2),
                     two(1),
                     two(1),
                     false,
                     two(0),
                     s.constant(1)};
           },
           float_dtypes(), true},
          {"depthwise",
           [](SampleBuilder& s) -> std::vector<Argument> {
             const auto two = [&](std::int64_t v) { return std::vector<Expr>(2, s.constant(v)); };
             return {s.tensor({s.size(2), s.constant(4), s.size(9), s.size(7)}),
                     s.tensor({s.constant(4), s.constant(1), s.constant(3), s.constant(3)}),
                     graph::None{},
                     two(1),
                     two(2),
                     two(2),
                     false,
                     two(0),
                     s.constant(4)};
           },
           float_dtypes(), true},
          {"transposed",
           [](SampleBuilder& s) -> std::vector<Argument> {
             const auto one = [&](std::int64_t v) { return std::vector<Expr>{s.constant(v)}; };
             return {s.tensor({s.size(2), s.constant(4), s.size(9)}),
                     s.tensor({s.constant(4), s.constant(3), s.constant(3)}),
                     s.tensor({s.constant(6)}),
                     one(2),
                     one(1),
                     one(1),
                     true,
                     one(1),
                     s.constant(2)};
           },
           {DType::f32},
           true}};
}
std::vector<Sample> samples_conv2d() {
  return {{"unbatched",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {s.tensor({s.constant(4), s.size(9), s.size(7)}),
                     s.tensor({s.constant(6), s.constant(4), s.constant(3), s.constant(3)})};
           },
           float_dtypes(), true}};
}
std::vector<Sample> samples_conv1d() {
  return {{"batched",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {s.tensor({s.size(2), s.constant(4), s.size(9)}),
                     s.tensor({s.constant(6), s.constant(4), s.constant(3)})};
           },
           float_dtypes(), true}};
}
std::vector<Sample> samples_conv3d() {
  return {{"batched",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {s.tensor({s.size(2), s.constant(2), s.size(5), s.size(6), s.size(4)}),
                     s.tensor({s.constant(3), s.constant(2), s.constant(2), s.constant(3),
                               s.constant(2)})};
           },
           float_dtypes(), true}};
}

constexpr std::string_view kSchemaForward =
    "(input: tensor, weight: tensor, bias: optional_tensor = none, stride: integer_list = [1], "
    "padding: integer_list = [0], dilation: integer_list = [1], groups: integer = 1) -> tensor";
constexpr std::string_view kSchemaWord =
    "(input: tensor, weight: tensor, bias: optional_tensor = none, stride: integer_list = [1], "
    "padding: string = \"valid\", dilation: integer_list = [1], groups: integer = 1) -> tensor";
constexpr std::string_view kSchemaTransposed =
    "(input: tensor, weight: tensor, bias: optional_tensor = none, stride: integer_list = [1], "
    "padding: integer_list = [0], output_padding: integer_list = [0], groups: integer = 1, "
    "dilation: integer_list = [1]) -> tensor";

constexpr OpDef composite(std::string_view name, std::string_view aten,
                          std::vector<Sample> (*samples)(),
                          std::string_view schema = kSchemaForward) {
  return {.name = name,
          .schema = schema,
          .doc = "Convolution; the input may lack the batch.",
          .traits = Trait::contraction,
          .infer = infer_composite<kForward>,
          .decompose = decompose_composite<kForward>,
          .reference = composite::ref_conv,
          .aten = aten,
          .samples = samples};
}
constexpr OpDef transposed(std::string_view name, std::string_view aten) {
  return {.name = name,
          .schema = kSchemaTransposed,
          .doc = "Transposed convolution; the input may lack the batch.",
          .traits = Trait::contraction,
          .infer = infer_composite<kTransposed>,
          .decompose = decompose_composite<kTransposed>,
          .reference = composite::ref_conv_transpose,
          .aten = aten};
}

constexpr OpDef kConvolution[] = {
    composite("conv1d", "aten::conv1d", samples_conv1d),
    composite("conv1d_padding", "aten::conv1d.padding", samples_conv1d, kSchemaWord),
    composite("conv2d", "aten::conv2d", samples_conv2d),
    composite("conv2d_padding", "aten::conv2d.padding", samples_conv2d, kSchemaWord),
    composite("conv3d", "aten::conv3d", samples_conv3d),
    composite("conv3d_padding", "aten::conv3d.padding", samples_conv3d, kSchemaWord),
    transposed("conv_transpose1d", "aten::conv_transpose1d"),
    transposed("conv_transpose2d", "aten::conv_transpose2d.input"),
    transposed("conv_transpose3d", "aten::conv_transpose3d.input"),
    {.name = "convolution",
     .schema = "(input: tensor, weight: tensor, bias: optional_tensor, stride: integer_list, "
               "padding: integer_list, dilation: integer_list, transposed: boolean, "
               "output_padding: integer_list, groups: integer) -> tensor",
     .doc = "Convolution over 1 to 3 spatial dimensions.",
     .traits = Trait::contraction,
     .infer = infer_convolution,
     .lower = lower_convolution,
     .library = true,
     .reference = reference_convolution,
     .aten = "aten::convolution",
     .samples = samples_convolution},
};

}  // namespace

std::span<const OpDef> convolution_ops() { return kConvolution; }

}  // namespace inkle::ops
