// Normalisations over the elements of one sample: layer, group and root-mean-square norm, and
// weight norm. Each is a reduction nest (Welford or a sum of squares) and a pointwise nest over the
// same data, which the scheduler puts in one kernel. All inside is f32 or f64.
#include <cmath>
#include <limits>

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
using loop::ReduceOp;

// 1 / sqrt(m2 / count + eps) from a Welford result.
Val inverse_deviation(BodyBuilder& b, Val m2, const Sizes& reduced, double eps) {
  const DType dtype = b.dtype(m2);
  const Val variance = b.div(m2, count_value(b, reduced, dtype));
  return b.unary(Opcode::rsqrt, b.add(variance, b.constant(dtype, eps)));
}

// value * weight + bias; either may be missing.
Val affine(const Lowering& l, BodyBuilder& b, Val value, const Tensor* weight, const Tensor* bias,
           Indices i) {
  const DType dtype = b.dtype(value);
  if (weight != nullptr) value = b.mul(value, element_as(l, b, *weight, i, dtype));
  if (bias != nullptr) value = b.add(value, element_as(l, b, *bias, i, dtype));
  return value;
}

// Trailing dimensions named by argument 1; weight and bias (arguments 2, 3) of exactly those sizes.
Axes trailing_axes(const Inference& in, const Type& x) {
  const std::vector<Expr> shape = in.integers(1);
  if (shape.empty() || shape.size() > x.rank()) in.fail("normalized_shape has the wrong length");
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (!in.context().guard_equal(shape[d], x.sizes[x.rank() - shape.size() + d])) {
      in.fail("normalized_shape does not match the trailing sizes");
    }
  }
  return Axes::from(x.rank() - shape.size(), x.rank());
}
void check_parameter(Inference& in, std::size_t arg, const Sizes& sizes) {
  const Type* p = in.optional_tensor(arg);
  if (p == nullptr) return;
  if (!abi::is_float(infer::computable(in, arg).dtype) || p->rank() != sizes.size()) {
    in.fail("a weight or bias does not fit");
  }
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (!in.context().guard_equal(p->sizes[d], sizes[d])) in.fail("a weight or bias does not fit");
  }
}

// --- Layer norm: (input, normalized_shape, weight?, bias?, eps) -> (y, mean, rstd)

Types infer_layer_norm(Inference& in) {
  const Type& x = float_tensor(in, 0);
  const Axes axes = trailing_axes(in, x);
  const Sizes shape = axes.reduced(in.context(), x.sizes);
  check_parameter(in, 2, shape);
  check_parameter(in, 3, shape);
  // ATen keeps the moments of f16 and bf16 in f32 everywhere but on the CPU.
  const DType kept = x.device.kind == abi::DeviceKind::cpu ? x.dtype : abi::compute_type(x.dtype);
  const Type moment = infer::make(x, kept, axes.result(in.context(), x.sizes, true));
  return {infer::make(x, x.dtype, x.sizes), moment, moment};
}
Types infer_layer_norm_only(Inference& in) { return {infer_layer_norm(in)[0]}; }

void lower_layer_norm(Lowering& l) {
  const Tensor& x = l.tensor(0);
  const DType dtype = x.dtype, compute = abi::compute_type(dtype);
  const std::size_t first = x.rank() - l.args().integers(1).size();
  const Axes axes = Axes::from(first, x.rank());
  const double eps = l.args().real(4);
  const Sizes reduced = axes.reduced(l.context(), x.sizes);
  const std::vector<Tensor> moments =
      l.reduce(ReduceOp::welford, axes.kept(x.sizes), reduced, compute, {compute, compute},
               [&](BodyBuilder& b, Indices outer, Indices inner) {
                 return element_as(l, b, x, axes.join(outer, inner), compute);
               });
  l.result(l.pointwise(x.sizes, dtype, [&](BodyBuilder& b, Indices i) {
    const Indices row = i.first(first);
    const Val rstd = inverse_deviation(b, l.element(b, moments[1], row), reduced, eps);
    const Val centred = b.sub(element_as(l, b, x, i, compute), l.element(b, moments[0], row));
    return affine(l, b, b.mul(centred, rstd), l.optional_tensor(2), l.optional_tensor(3),
                  i.subspan(first));
  }));
  if (l.node().results.size() == 1) return;
  const DType kept = l.result_type(1).dtype;
  if (l.is_used(1)) {
    const Tensor mean = l.pointwise(moments[0].sizes, kept, [&](BodyBuilder& b, Indices i) {
      return l.element(b, moments[0], i);
    });
    l.result(1, keep_dims(l, mean, axes, true));
  }
  if (l.is_used(2)) {
    const Tensor rstd = l.pointwise(moments[1].sizes, kept, [&](BodyBuilder& b, Indices i) {
      return inverse_deviation(b, l.element(b, moments[1], i), reduced, eps);
    });
    l.result(2, keep_dims(l, rstd, axes, true));
  }
}

// The mean and 1 / sqrt(variance + eps) of some elements; of none 0 and NaN, as in eager.
struct Moments {
  double mean = 0, rstd = 0;
};
Moments moments_of(const RefTensor& x, const std::vector<std::size_t>& group, double eps) {
  const double count = static_cast<double>(group.size());
  double sum = 0, squares = 0;
  for (const std::size_t j : group) sum += x.real(j);
  const double mean = group.empty() ? 0 : sum / count;
  for (const std::size_t j : group) squares += (x.real(j) - mean) * (x.real(j) - mean);
  return {mean, 1 / std::sqrt(squares / count + eps)};
}

void reference_layer_norm(Evaluation& e) {
  const RefTensor& x = e.tensor(0);
  const RefTensor *weight = e.optional_tensor(2), *bias = e.optional_tensor(3);
  const auto groups = reduction_groups(x, Axes::from(x.rank() - e.integers(1).size(), x.rank()));
  for (std::size_t row = 0; row < groups.size(); ++row) {
    const Moments m = moments_of(x, groups[row], e.real(4));
    for (std::size_t k = 0; k < groups[row].size(); ++k) {
      const std::size_t j = groups[row][k];
      const double y = (x.real(j) - m.mean) * m.rstd * (weight != nullptr ? weight->real(k) : 1);
      e.result().set(j, y + (bias != nullptr ? bias->real(k) : 0));
    }
    if (e.result_count() == 1) continue;
    e.result(1).set(row, m.mean);
    e.result(2).set(row, m.rstd);
  }
}

// --- Group norm: (input, weight?, bias?, N, C, HxW, group, eps) -> (y, mean, rstd)
// The composite is (input, num_groups, weight?, bias?, eps, cudnn_enabled) -> y.

struct GroupNormArguments {
  std::size_t weight, bias, groups, eps;
};
constexpr GroupNormArguments kNative{.weight = 1, .bias = 2, .groups = 6, .eps = 7};
constexpr GroupNormArguments kComposite{.weight = 2, .bias = 3, .groups = 1, .eps = 4};

template <GroupNormArguments a>
Types infer_group_norm(Inference& in) {
  const Type& x = float_tensor(in, 0);
  if (x.rank() < 2) in.fail("needs a batch and a channel dimension");
  const std::int64_t groups = in.constant_integer(a.groups);
  if (groups <= 0 || !in.context().guard_equal(mod(x.sizes[1], groups), in.context().constant(0))) {
    in.fail("the number of groups does not divide the channels");
  }
  const Expr places = sym::product(in.context(), Sizes(x.sizes.begin() + 1, x.sizes.end()));
  if (sym::bounds(places).high == 0) in.fail("a group has no elements");
  check_parameter(in, a.weight, {x.sizes[1]});
  check_parameter(in, a.bias, {x.sizes[1]});
  const Type y = infer::make(x, x.dtype, x.sizes);
  if (a.groups == kComposite.groups) return {y};
  const Type moment = infer::make(x, x.dtype, {x.sizes[0], in.context().constant(groups)});
  return {y, moment, moment};
}

// All nests run over (n, group, channel of the group, spatial...), so that their accesses are
// alike; the result is seen as (n, channel, spatial...).
template <GroupNormArguments a>
void lower_group_norm(Lowering& l) {
  const Tensor& x = l.tensor(0);
  const DType dtype = x.dtype, compute = abi::compute_type(dtype);
  const double eps = l.args().real(a.eps);
  const Expr groups = l.args().integer(a.groups);
  const Expr depth = floordiv(x.sizes[1], groups);
  Sizes grouped = {x.sizes[0], groups, depth};
  grouped.insert(grouped.end(), x.sizes.begin() + 2, x.sizes.end());
  const Sizes reduced(grouped.begin() + 2, grouped.end());
  const Tensor xg = l.view(x, grouped, [depth](Indices i) {
    std::vector<Expr> full = {i[0], i[1] * depth + i[2]};
    full.insert(full.end(), i.begin() + 3, i.end());
    return full;
  });
  const std::vector<Tensor> moments =
      l.reduce(ReduceOp::welford, {x.sizes[0], groups}, reduced, compute, {compute, compute},
               [&](BodyBuilder& b, Indices outer, Indices inner) {
                 std::vector<Expr> i(outer.begin(), outer.end());
                 i.insert(i.end(), inner.begin(), inner.end());
                 return element_as(l, b, xg, i, compute);
               });
  const Tensor y = l.pointwise(grouped, dtype, [&](BodyBuilder& b, Indices i) {
    const Indices row = i.first(2);
    const Val rstd = inverse_deviation(b, l.element(b, moments[1], row), reduced, eps);
    const Val centred = b.sub(element_as(l, b, xg, i, compute), l.element(b, moments[0], row));
    return affine(l, b, b.mul(centred, rstd), l.optional_tensor(a.weight),
                  l.optional_tensor(a.bias), std::vector<Expr>{i[1] * depth + i[2]});
  });
  l.result(l.view(y, x.sizes, [depth](Indices i) {
    std::vector<Expr> full = {i[0], floordiv(i[1], depth), mod(i[1], depth)};
    full.insert(full.end(), i.begin() + 2, i.end());
    return full;
  }));
  if (l.node().results.size() == 1) return;
  if (l.is_used(1)) {
    l.result(1, l.pointwise(moments[0].sizes, dtype, [&](BodyBuilder& b, Indices i) {
      return l.element(b, moments[0], i);
    }));
  }
  if (l.is_used(2)) {
    l.result(2, l.pointwise(moments[1].sizes, dtype, [&](BodyBuilder& b, Indices i) {
      return inverse_deviation(b, l.element(b, moments[1], i), reduced, eps);
    }));
  }
}

template <GroupNormArguments a>
void reference_group_norm(Evaluation& e) {
  const RefTensor& x = e.tensor(0);
  const RefTensor *weight = e.optional_tensor(a.weight), *bias = e.optional_tensor(a.bias);
  const auto group_count = static_cast<std::size_t>(x.sizes[0] * e.integer(a.groups));
  if (x.count() == 0) return;
  const std::size_t size = x.count() / group_count;
  const std::size_t channels = static_cast<std::size_t>(x.sizes[1]);
  const std::size_t spatial = x.count() / static_cast<std::size_t>(x.sizes[0]) / channels;
  for (std::size_t g = 0; g < group_count; ++g) {
    std::vector<std::size_t> group(size);
    for (std::size_t k = 0; k < size; ++k) group[k] = g * size + k;
    const Moments m = moments_of(x, group, e.real(a.eps));
    for (const std::size_t j : group) {
      const std::size_t c = j / spatial % channels;
      const double y = (x.real(j) - m.mean) * m.rstd * (weight != nullptr ? weight->real(c) : 1);
      e.result().set(j, y + (bias != nullptr ? bias->real(c) : 0));
    }
    if (e.result_count() == 1) continue;
    e.result(1).set(g, m.mean);
    e.result(2).set(g, m.rstd);
  }
}

// --- RMS norm: (input, normalized_shape, weight?, eps?) -> (y, rstd)

Types infer_rms_norm(Inference& in) {
  const Type& x = float_tensor(in, 0);
  const Axes axes = trailing_axes(in, x);
  check_parameter(in, 2, axes.reduced(in.context(), x.sizes));
  return {infer::make(x, x.dtype, x.sizes),
          infer::make(x, abi::compute_type(x.dtype), axes.result(in.context(), x.sizes, true))};
}
Types infer_rms_norm_only(Inference& in) { return {infer_rms_norm(in)[0]}; }

// Without eps: the distance from 1 to the next number of the type computed in.
double default_eps(DType compute) {
  return compute == DType::f64 ? std::numeric_limits<double>::epsilon()
                               : double{std::numeric_limits<float>::epsilon()};
}

void lower_rms_norm(Lowering& l) {
  const Tensor& x = l.tensor(0);
  const DType compute = abi::compute_type(x.dtype);
  const std::size_t first = x.rank() - l.args().integers(1).size();
  const Axes axes = Axes::from(first, x.rank());
  const Sizes reduced = axes.reduced(l.context(), x.sizes);
  const double eps = l.args().is_none(3) ? default_eps(compute) : l.args().real(3);
  const Tensor squares = l.reduce(ReduceOp::sum, axes.kept(x.sizes), reduced, compute, {compute},
                                  [&](BodyBuilder& b, Indices outer, Indices inner) {
                                    const Val v =
                                        element_as(l, b, x, axes.join(outer, inner), compute);
                                    return b.mul(v, v);
                                  })[0];
  l.result(l.pointwise(x.sizes, x.dtype, [&](BodyBuilder& b, Indices i) {
    const Val rstd = inverse_deviation(b, l.element(b, squares, i.first(first)), reduced, eps);
    return affine(l, b, b.mul(element_as(l, b, x, i, compute), rstd), l.optional_tensor(2), nullptr,
                  i.subspan(first));
  }));
  if (l.node().results.size() == 1 || !l.is_used(1)) return;
  const Tensor rstd = l.pointwise(squares.sizes, compute, [&](BodyBuilder& b, Indices i) {
    return inverse_deviation(b, l.element(b, squares, i), reduced, eps);
  });
  l.result(1, keep_dims(l, rstd, axes, true));
}

void reference_rms_norm(Evaluation& e) {
  const RefTensor& x = e.tensor(0);
  const RefTensor* weight = e.optional_tensor(2);
  const double eps = e.is_none(3) ? default_eps(abi::compute_type(x.dtype)) : e.real(3);
  const auto groups = reduction_groups(x, Axes::from(x.rank() - e.integers(1).size(), x.rank()));
  for (std::size_t row = 0; row < groups.size(); ++row) {
    double squares = 0;
    for (const std::size_t j : groups[row]) squares += x.real(j) * x.real(j);
    const double rstd = 1 / std::sqrt(squares / static_cast<double>(groups[row].size()) + eps);
    for (std::size_t k = 0; k < groups[row].size(); ++k) {
      const std::size_t j = groups[row][k];
      e.result().set(j, x.real(j) * rstd * (weight != nullptr ? weight->real(k) : 1));
    }
    if (e.result_count() > 1) e.result(1).set(row, rstd);
  }
}

// --- Weight norm: (v, g, dim) -> (v * g / norm, norm), the norm over all dimensions but dim

Types infer_weight_norm(Inference& in) {
  const Type& v = float_tensor(in, 0);
  const Type& g = float_tensor(in, 1);
  const std::size_t dim = in.dim(in.constant_integer(2), v.rank());
  if (dim != 0 && dim + 1 != v.rank()) in.fail("dim must be the first or the last");
  if (g.rank() != v.rank()) in.fail("g must have the rank of v");
  return {infer::make(v, v.dtype, v.sizes), infer::make(v, abi::compute_type(v.dtype), g.sizes)};
}
Axes all_but(std::size_t dim, std::size_t rank) {
  Axes axes = Axes::all(rank);
  axes.is_reduced[dim] = false;
  return axes;
}
void lower_weight_norm(Lowering& l) {
  const Tensor &v = l.tensor(0), &g = l.tensor(1);
  const DType compute = abi::compute_type(v.dtype);
  const Axes axes = all_but(l.args().dim(l.args().constant_integer(2), v.rank()), v.rank());
  const Tensor squares =
      l.reduce(ReduceOp::sum, axes.kept(v.sizes), axes.reduced(l.context(), v.sizes), compute,
               {compute}, [&](BodyBuilder& b, Indices outer, Indices inner) {
                 const Val e = element_as(l, b, v, axes.join(outer, inner), compute);
                 return b.mul(e, e);
               })[0];
  const auto norm = [&](BodyBuilder& b, Indices i) {
    return b.unary(Opcode::sqrt, l.element(b, squares, i));
  };
  l.result(l.pointwise(v.sizes, v.dtype, [&](BodyBuilder& b, Indices i) {
    const Val scale =
        b.div(b.cast(l.broadcast_element(b, g, i), compute), norm(b, axes.kept_indices(i)));
    return b.mul(element_as(l, b, v, i, compute), scale);
  }));
  if (l.is_used(1))
    l.result(1, keep_dims(l, l.pointwise(squares.sizes, compute, norm), axes, true));
}
void reference_weight_norm(Evaluation& e) {
  const RefTensor &v = e.tensor(0), &g = e.tensor(1);
  const auto groups = reduction_groups(v, all_but(e.dim(e.integer(2), v.rank()), v.rank()));
  for (std::size_t row = 0; row < groups.size(); ++row) {
    double squares = 0;
    for (const std::size_t j : groups[row]) squares += v.real(j) * v.real(j);
    for (const std::size_t j : groups[row]) {
      e.result().set(j, v.real(j) * (g.real(row) / std::sqrt(squares)));
    }
    e.result(1).set(row, std::sqrt(squares));
  }
}

// --- Samples

template <bool composite>
std::vector<Sample> samples_layer_norm() {
  return {{"affine",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {s.free_tensor({3, 5, 37}), std::vector<Expr>{s.size(37)}, s.free_tensor({37}),
                     s.free_tensor({37}), 1e-5};
           },
           float_dtypes()},
          {"plain",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {s.free_tensor({3, 5, 7}), std::vector<Expr>{s.size(5), s.size(7)},
                     graph::None{}, graph::None{}, 1e-12};
           },
           float_dtypes()}};
}
std::vector<Sample> samples_native_group_norm() {
  return {{"affine",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {s.tensor({s.size(2), s.constant(6), s.size(5)}),
                     s.tensor({s.constant(6)}),
                     s.tensor({s.constant(6)}),
                     s.size(2),
                     s.constant(6),
                     s.size(5),
                     s.constant(3),
                     1e-5};
           },
           float_dtypes()}};
}
std::vector<Sample> samples_group_norm() {
  return {{"affine",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {s.tensor({s.size(2), s.constant(6), s.size(5)}),
                     s.constant(3),
                     s.tensor({s.constant(6)}),
                     s.tensor({s.constant(6)}),
                     1e-5,
                     true};
           },
           float_dtypes()}};
}
std::vector<Sample> samples_rms_norm() {
  return {{"scaled",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {s.free_tensor({3, 5, 37}), std::vector<Expr>{s.size(37)}, s.free_tensor({37}),
                     1e-6};
           },
           float_dtypes()},
          {"plain",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {s.free_tensor({3, 5, 37}), std::vector<Expr>{s.size(37)}, graph::None{},
                     graph::None{}};
           },
           float_dtypes()}};
}
std::vector<Sample> samples_weight_norm() {
  return {{"rows",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {s.free_tensor({4, 3, 5}), s.tensor({s.size(4), s.constant(1), s.constant(1)}),
                     s.constant(0)};
           },
           float_dtypes()}};
}

constexpr OpDef kNorm[] = {
    {.name = "_fused_rms_norm",
     .schema = "(input: tensor, normalized_shape: integer_list, weight: optional_tensor, "
               "eps: optional_real) -> tensor, tensor",
     .doc = "x / sqrt(mean(x^2) + eps) * weight over trailing dimensions, and the reciprocal.",
     .traits = Trait::reduction,
     .infer = infer_rms_norm,
     .lower = lower_rms_norm,
     .reference = reference_rms_norm,
     .aten = "aten::_fused_rms_norm",
     .samples = samples_rms_norm},
    {.name = "_weight_norm_interface",
     .schema = "(v: tensor, g: tensor, dim: integer = 0) -> tensor, tensor",
     .doc = "v * g / norm(v), the norm over all dimensions but dim; and the norms.",
     .traits = Trait::reduction,
     .infer = infer_weight_norm,
     .lower = lower_weight_norm,
     .reference = reference_weight_norm,
     .aten = "aten::_weight_norm_interface",
     .samples = samples_weight_norm},
    {.name = "group_norm",
     .schema = "(input: tensor, num_groups: integer, weight: optional_tensor = none, "
               "bias: optional_tensor = none, eps: real = 1e-05, "
               "cudnn_enabled: boolean = true) -> tensor",
     .doc = "Normalises groups of channels of each sample.",
     .traits = Trait::reduction,
     .infer = infer_group_norm<kComposite>,
     .lower = lower_group_norm<kComposite>,
     .reference = reference_group_norm<kComposite>,
     .aten = "aten::group_norm",
     .samples = samples_group_norm},
    {.name = "layer_norm",
     .schema = "(input: tensor, normalized_shape: integer_list, weight: optional_tensor = none, "
               "bias: optional_tensor = none, eps: real = 1e-05, cudnn_enable: boolean = true) "
               "-> tensor",
     .doc = "Normalises over trailing dimensions.",
     .traits = Trait::reduction,
     .infer = infer_layer_norm_only,
     .lower = lower_layer_norm,
     .reference = reference_layer_norm,
     .aten = "aten::layer_norm",
     .samples = samples_layer_norm<true>},
    {.name = "native_group_norm",
     .schema = "(input: tensor, weight: optional_tensor, bias: optional_tensor, N: integer, "
               "C: integer, HxW: integer, group: integer, eps: real) -> tensor, tensor, tensor",
     .doc = "Normalises groups of channels of each sample; also means and reciprocal deviations.",
     .traits = Trait::reduction,
     .infer = infer_group_norm<kNative>,
     .lower = lower_group_norm<kNative>,
     .reference = reference_group_norm<kNative>,
     .aten = "aten::native_group_norm",
     .samples = samples_native_group_norm},
    {.name = "native_layer_norm",
     .schema = "(input: tensor, normalized_shape: integer_list, weight: optional_tensor, "
               "bias: optional_tensor, eps: real) -> tensor, tensor, tensor",
     .doc = "Normalises over trailing dimensions; also means and reciprocal deviations.",
     .traits = Trait::reduction,
     .infer = infer_layer_norm,
     .lower = lower_layer_norm,
     .reference = reference_layer_norm,
     .aten = "aten::native_layer_norm",
     .samples = samples_layer_norm<false>},
    {.name = "rms_norm",
     .schema = "(input: tensor, normalized_shape: integer_list, weight: optional_tensor = none, "
               "eps: optional_real = none) -> tensor",
     .doc = "x / sqrt(mean(x^2) + eps) * weight over trailing dimensions.",
     .traits = Trait::reduction,
     .infer = infer_rms_norm_only,
     .lower = lower_rms_norm,
     .reference = reference_rms_norm,
     .aten = "aten::rms_norm",
     .samples = samples_rms_norm},
};

}  // namespace

std::span<const OpDef> norm_ops() { return kNorm; }

}  // namespace inkle::ops
