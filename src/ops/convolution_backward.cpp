// Gradients of convolutions. With respect to the images it is a transposed convolution by the same
// weights (of a transposed one, a plain convolution); with respect to the weights one node of the
// loop IR; with respect to the bias a sum.
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
using graph::Trait;
using infer::Types;

// (grad_output, input, weight, bias_sizes?, stride, padding, dilation, transposed, output_padding,
// groups, output_mask) -> gradients of input, weight and bias. The loop IR takes the size of a
// transposed convolution from its result, so output_padding is not asked for.
loop::Convolution parameters_of(const Inference& in, std::size_t spatial) {
  loop::Convolution c = convolution_parameters(in, 4, spatial);
  c.output_padding.assign(spatial, 0);
  return c;
}

Types infer_backward(Inference& in) {
  const Type &g = float_tensor(in, 0), &x = float_tensor(in, 1), &w = float_tensor(in, 2);
  if (x.rank() < 3 || x.rank() > 5) unsupported("convolution: 1 to 3 spatial dimensions");
  if (w.rank() != x.rank() || g.rank() != x.rank()) in.fail("ranks of the operands differ");
  if (w.dtype != x.dtype || g.dtype != x.dtype) in.fail("dtypes of the operands differ");
  const bool cpu = x.device.kind == abi::DeviceKind::cpu;
  // On a GPU the framework chooses the precision of f32.
  if (cpu ? x.dtype != DType::f32 && x.dtype != DType::bf16 : !abi::is_reduced_float(x.dtype)) {
    unsupported("gradients of a convolution in {} on a {}", abi::name_of(x.dtype),
                cpu ? "CPU" : "GPU");
  }
  const loop::Convolution c = parameters_of(in, x.rank() - 2);
  for (std::size_t d = 0; d < c.stride.size(); ++d) {
    if (c.stride[d] <= 0 || c.dilation[d] <= 0) in.fail("strides and dilations are positive");
  }
  if (c.groups <= 0) in.fail("groups is positive");
  const Expr channels = c.transposed ? w.sizes[0] : w.sizes[1] * c.groups;
  const Expr made = c.transposed ? w.sizes[1] * c.groups : w.sizes[0];
  if (!in.context().guard_equal(x.sizes[1], channels) ||
      !in.context().guard_equal(g.sizes[1], made) ||
      !in.context().guard_equal(g.sizes[0], x.sizes[0])) {
    in.fail("channels or batches do not fit");
  }
  return {infer::make(x, x.dtype, x.sizes), infer::make(x, x.dtype, w.sizes),
          infer::make(x, x.dtype, {g.sizes[1]})};
}

void lower_backward(Lowering& l) {
  const Tensor &g = l.tensor(0), &x = l.tensor(1), &w = l.tensor(2);
  loop::Convolution c = parameters_of(l.args(), x.rank() - 2);
  const bool transposed = c.transposed;
  if (l.is_used(0)) {
    c.transposed = !transposed;
    l.result(0, l.convolution(g, w, nullptr, c, x.sizes, x.dtype));
  }
  if (l.is_used(1)) {
    // A transposed convolution maps what a plain one with these weights would make.
    c.transposed = false;
    c.weight_gradient = true;
    l.result(1,
             l.convolution(transposed ? g : x, transposed ? x : g, nullptr, c, w.sizes, x.dtype));
  }
  if (!l.is_used(2)) return;
  Sizes reduced = {g.sizes[0]};
  reduced.insert(reduced.end(), g.sizes.begin() + 2, g.sizes.end());
  const DType compute = abi::compute_type(g.dtype);
  l.result(2, l.reduce(loop::ReduceOp::sum, {g.sizes[1]}, reduced, compute, {g.dtype},
                       [&](BodyBuilder& b, Indices o, Indices r) {
                         std::vector<Expr> i = {r[0], o[0]};
                         i.insert(i.end(), r.begin() + 1, r.end());
                         return l.element(b, g, i);
                       })[0]);
}

void reference_backward(Evaluation& e) {
  const RefTensor &g = e.tensor(0), &x = e.tensor(1), &w = e.tensor(2);
  const std::size_t spatial = x.rank() - 2;
  const auto list = [&](std::size_t arg, std::int64_t otherwise) {
    std::vector<std::int64_t> v = e.integers(arg);
    if (v.empty()) v.push_back(otherwise);
    if (v.size() == 1) v.resize(spatial, v[0]);
    return v;
  };
  const auto stride = list(4, 1), padding = list(5, 0), dilation = list(6, 1);
  const bool transposed = e.boolean(7);
  const std::int64_t groups = e.integer(9);
  RefTensor &dx = e.result(0), &dw = e.result(1), &db = e.result(2);
  const auto add = [](RefTensor& t, std::size_t at, double value) {
    t.set(at, t.real(at) + value);
  };
  // As in the forward, over (n, channel of the near side, channel in the far side's group, near
  // position..., window...): `far` is where near * stride - padding + window * dilation lands.
  const RefTensor& near = transposed ? x : g;
  const RefTensor& far = transposed ? g : x;
  const std::int64_t near_group = near.sizes[1] / groups, far_group = far.sizes[1] / groups;
  std::vector<std::int64_t> space = {x.sizes[0], near.sizes[1], far_group};
  space.insert(space.end(), near.sizes.begin() + 2, near.sizes.end());
  space.insert(space.end(), w.sizes.begin() + 2, w.sizes.end());
  for_each_index(space, [&](std::span<const std::int64_t> i, std::size_t) {
    std::vector<std::int64_t> at_near = {i[0], i[1]};
    std::vector<std::int64_t> at_far = {i[0], i[1] / near_group * far_group + i[2]};
    std::vector<std::int64_t> at_w = {i[1], i[2]};
    for (std::size_t d = 0; d < spatial; ++d) {
      const std::int64_t k = i[3 + spatial + d];
      at_near.push_back(i[3 + d]);
      at_far.push_back(i[3 + d] * stride[d] - padding[d] + k * dilation[d]);
      at_w.push_back(k);
      if (at_far.back() < 0 || at_far.back() >= far.sizes[d + 2]) return;
    }
    const std::size_t at_g = g.at(transposed ? at_far : at_near);
    const std::size_t at_x = x.at(transposed ? at_near : at_far);
    add(dx, at_x, g.real(at_g) * w.real(w.at(at_w)));
    add(dw, w.at(at_w), g.real(at_g) * x.real(at_x));
  });
  for_each_index(g.sizes, [&](std::span<const std::int64_t> i, std::size_t p) {
    add(db, static_cast<std::size_t>(i[1]), g.real(p));
  });
}

// Sizes of one sample: image and result along each dimension, channels, groups.
struct Case {
  std::vector<std::int64_t> image, result, window;
  std::int64_t channels = 4, made = 6, groups = 1, stride = 1, padding = 0, dilation = 1;
  bool transposed = false;
  std::int64_t output_padding = 0;
};
const Case kPadded{.image = {9, 7}, .result = {5, 4}, .window = {3, 3}, .stride = 2, .padding = 1};
const Case kSkipped{.image = {8, 9}, .result = {3, 4}, .window = {3, 2}, .groups = 2, .stride = 2};
const Case kDepthwise{.image = {9, 7},
                      .result = {9, 7},
                      .window = {3, 3},
                      .made = 4,
                      .groups = 4,
                      .padding = 2,
                      .dilation = 2};
const Case kTransposed{.image = {9},
                       .result = {18},
                       .window = {3},
                       .groups = 2,
                       .stride = 2,
                       .padding = 1,
                       .transposed = true,
                       .output_padding = 1};
const Case kVolume{.image = {5, 6, 4}, .result = {4, 4, 3}, .window = {2, 3, 2}, .channels = 2};
const Case kPoint{.image = {5, 6}, .result = {5, 6}, .window = {1, 1}, .channels = 16, .made = 32};

template <const Case& c>
std::vector<Argument> sample(SampleBuilder& s) {
  const auto image = [&](std::int64_t channels, const std::vector<std::int64_t>& sizes) {
    Sizes all = {s.size(2), s.constant(channels)};
    for (const std::int64_t size : sizes) all.push_back(s.constant(size));
    return s.tensor(all);
  };
  Sizes weights = {s.constant(c.transposed ? c.channels : c.made),
                   s.constant((c.transposed ? c.made : c.channels) / c.groups)};
  for (const std::int64_t size : c.window) weights.push_back(s.constant(size));
  const auto list = [&](std::int64_t v) {
    return std::vector<Expr>(c.image.size(), s.constant(v));
  };
  return {image(c.made, c.result),
          image(c.channels, c.image),
          s.tensor(weights),
          std::vector<Expr>{s.constant(c.made)},
          list(c.stride),
          list(c.padding),
          list(c.dilation),
          c.transposed,
          list(c.output_padding),
          s.constant(c.groups),
          std::vector<bool>{true, true, true}};
}

std::vector<Sample> samples_backward() {
  const std::vector<DType> dtypes = {DType::f32, DType::bf16};
  return {{"padded", sample<kPadded>, dtypes},
          {"rows that no window reaches", sample<kSkipped>, dtypes},
          {"depthwise", sample<kDepthwise>, {DType::f32}},
          {"transposed", sample<kTransposed>, {DType::f32}},
          {"volume", sample<kVolume>, {DType::f32}},
          {"one point", sample<kPoint>, dtypes}};
}

constexpr OpDef kConvolutionBackward[] = {
    {.name = "convolution_backward",
     .schema = "(grad_output: tensor, input: tensor, weight: tensor, "
               "bias_sizes: optional_integer_list, stride: integer_list, padding: integer_list, "
               "dilation: integer_list, transposed: boolean, output_padding: integer_list, "
               "groups: integer, output_mask: boolean_list) -> tensor, tensor, tensor",
     .doc = "Gradients of a convolution with respect to input, weight and bias.",
     .traits = Trait::contraction,
     .infer = infer_backward,
     .lower = lower_backward,
     .library = true,
     .reference = reference_backward,
     .aten = "aten::convolution_backward",
     .samples = samples_backward},
};

}  // namespace

std::span<const OpDef> convolution_backward_ops() { return kConvolutionBackward; }

}  // namespace inkle::ops
