// Variances, standard deviations and vector norms.
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

// --- Variance: (self, dim?, correction?, keepdim), or (self, dim?, unbiased, keepdim), or
// (self, unbiased)

enum class Form { correction, unbiased, whole };

template <class Source>
Axes axes_in(const Source& in, Form form, std::size_t rank) {
  return form == Form::whole ? Axes::all(rank) : axes_of(in, 1, rank);
}
template <class Source>
double correction_in(const Source& in, Form form) {
  if (form == Form::whole) return in.boolean(1) ? 1 : 0;
  if (form == Form::unbiased) return in.boolean(2) ? 1 : 0;
  return in.is_none(2) ? 1 : in.real(2);
}
template <class Source>
bool keepdim_in(const Source& in, Form form) {
  return form != Form::whole && in.boolean(3);
}

template <Form form, int results>
Types infer_variance(Inference& in) {
  const Type& x = float_tensor(in, 0);
  const Axes axes = axes_in(in, form, x.rank());
  const Type y = infer::make(x, x.dtype, axes.result(in.context(), x.sizes, keepdim_in(in, form)));
  return Types(results, y);
}

// `in_own_dtype`: accumulates in what the elements are computed in.
template <Form form, bool deviation, bool in_own_dtype>
void lower_variance(Lowering& l) {
  const Tensor& x = l.tensor(0);
  // A variance or its root may lie in the range of f32 where squares or their sum do not.
  const DType compute = in_own_dtype ? abi::compute_type(x.dtype)
                                     : accumulator_of(l.result_type(), {DType::f32, DType::bf16});
  const Axes axes = axes_in(l.args(), form, x.rank());
  const Sizes reduced = axes.reduced(l.context(), x.sizes);
  const double correction = correction_in(l.args(), form);
  const bool keepdim = keepdim_in(l.args(), form);
  const std::vector<Tensor> moments =
      l.reduce(ReduceOp::welford, axes.kept(x.sizes), reduced, compute, {compute, compute},
               [&](BodyBuilder& b, Indices outer, Indices inner) {
                 return element_as(l, b, x, axes.join(outer, inner), compute);
               });
  const Tensor y = l.pointwise(moments[1].sizes, x.dtype, [&](BodyBuilder& b, Indices i) {
    const Val count = count_value(b, reduced, compute);
    const Val divisor =
        b.max(b.sub(count, b.constant(compute, correction)), b.constant(compute, 0.0));
    const Val variance = b.div(l.element(b, moments[1], i), divisor);
    return deviation ? b.unary(Opcode::sqrt, variance) : variance;
  });
  l.result(keep_dims(l, y, axes, keepdim));
  if (l.node().results.size() == 1 || !l.is_used(1)) return;
  const Tensor mean = l.pointwise(moments[0].sizes, x.dtype, [&](BodyBuilder& b, Indices i) {
    const bool is_some = sym::bounds(sym::product(l.context(), reduced)).low > 0;
    if (is_some) return l.element(b, moments[0], i);
    // Of no elements the mean is 0 / 0.
    const Val count = count_value(b, reduced, compute);
    const Val value = l.element(b, moments[0], i);
    return b.select(b.less(b.constant(compute, 0.0), count), value,
                    b.constant(compute, std::numeric_limits<double>::quiet_NaN()));
  });
  l.result(1, keep_dims(l, mean, axes, keepdim));
}

template <Form form, bool deviation>
void reference_variance(Evaluation& e) {
  const RefTensor& x = e.tensor(0);
  const auto groups = reduction_groups(x, axes_in(e, form, x.rank()));
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const double count = static_cast<double>(groups[i].size());
    double sum = 0, squares = 0;
    for (const std::size_t j : groups[i]) sum += x.real(j);
    for (const std::size_t j : groups[i]) squares += std::pow(x.real(j) - sum / count, 2);
    const double variance = squares / std::max(count - correction_in(e, form), 0.0);
    e.result().set(i, deviation ? std::sqrt(variance) : variance);
    if (e.result_count() > 1) e.result(1).set(i, sum / count);
  }
}

// --- Vector norm: (self, ord, dim?, keepdim, dtype?); norm: (self, p?, dim, keepdim)

struct NormPositions {
  int ord, dim, keepdim, dtype;
};
constexpr NormPositions kVectorNorm{1, 2, 3, 4};
constexpr NormPositions kNormDims{1, 2, 3, -1};
constexpr NormPositions kNormWhole{1, -1, -1, -1};

template <class Source>
Axes norm_axes(const Source& in, const NormPositions& p, std::size_t rank) {
  return p.dim < 0 ? Axes::all(rank) : axes_of(in, static_cast<std::size_t>(p.dim), rank);
}
// Not all dimensions by default.
template <class Source>
bool names_dims(const Source& in, const NormPositions& p) {
  return p.dim >= 0 && !in.integers(static_cast<std::size_t>(p.dim)).empty();
}
template <class Source>
double norm_order(const Source& in, const NormPositions& p) {
  const auto ord = static_cast<std::size_t>(p.ord);
  return in.is_none(ord) ? 2 : in.real(ord);
}
template <class Source>
bool norm_keepdim(const Source& in, const NormPositions& p) {
  return p.keepdim >= 0 && in.boolean(static_cast<std::size_t>(p.keepdim));
}

template <NormPositions p>
Types infer_norm(Inference& in) {
  const Type& x = float_tensor(in, 0);
  const DType dtype =
      p.dtype < 0 ? x.dtype : in.dtype(static_cast<std::size_t>(p.dtype)).value_or(x.dtype);
  if (!abi::is_float(dtype)) in.fail("needs a floating-point dtype");
  const Axes axes = norm_axes(in, p, x.rank());
  return {infer::make(x, dtype, axes.result(in.context(), x.sizes, norm_keepdim(in, p)))};
}

// What is reduced for an order: |x|, x != 0, x^2 or |x|^order.
Val norm_term(BodyBuilder& b, Val x, double order) {
  const DType dtype = b.dtype(x);
  if (order == 0) return b.cast(b.binary(Opcode::not_equal, x, b.constant(dtype, 0.0)), dtype);
  if (order == 2) return b.mul(x, x);
  const Val magnitude = b.unary(Opcode::abs, x);
  if (order == 1 || std::isinf(order)) return magnitude;
  return b.binary(Opcode::pow, magnitude, b.constant(dtype, order));
}

template <NormPositions p>
void lower_norm(Lowering& l) {
  const Tensor& x = l.tensor(0);
  const DType dtype = l.result_type().dtype, compute = abi::compute_type(dtype);
  const Axes axes = norm_axes(l.args(), p, x.rank());
  const Sizes reduced = axes.reduced(l.context(), x.sizes);
  // The norm of one element is its absolute value in ATen, however large its power: over dimensions
  // of one element, or over all of them.
  const bool is_one = std::ranges::all_of(reduced, [](Expr size) { return size.is_constant(1); }) &&
                      (x.rank() > 0 || !names_dims(l.args(), p));
  const double stated = norm_order(l.args(), p), order = is_one && stated != 0 ? 1 : stated;
  const ReduceOp op = !std::isinf(order) ? ReduceOp::sum
                      : order > 0        ? ReduceOp::max
                                         : ReduceOp::min;
  const Tensor total =
      l.reduce(op, axes.kept(x.sizes), reduced, compute, {compute},
               [&](BodyBuilder& b, Indices outer, Indices inner) {
                 const Val v = b.cast(element_as(l, b, x, axes.join(outer, inner), dtype), compute);
                 return norm_term(b, v, order);
               })[0];
  const Tensor y = l.pointwise(total.sizes, dtype, [&](BodyBuilder& b, Indices i) {
    const Val v = l.element(b, total, i);
    if (order == 2) return b.unary(Opcode::sqrt, v);
    if (order == 0 || order == 1 || std::isinf(order)) return v;
    return b.binary(Opcode::pow, v, b.constant(compute, 1 / order));
  });
  l.result(keep_dims(l, y, axes, norm_keepdim(l.args(), p)));
}

template <NormPositions p>
void reference_norm(Evaluation& e) {
  const RefTensor x = cast(e.tensor(0), e.result().dtype);
  const double order = norm_order(e, p);
  const auto groups = reduction_groups(x, norm_axes(e, p, x.rank()));
  for (std::size_t i = 0; i < groups.size(); ++i) {
    double total = std::isinf(order) && order < 0 ? order * -1 : 0;
    for (const std::size_t j : groups[i]) {
      const double v = std::abs(x.real(j));
      if (std::isinf(order))
        total = order > 0 ? std::max(total, v) : std::min(total, v);
      else
        total += order == 0 ? (v != 0 ? 1 : 0) : std::pow(v, order);
    }
    e.result().set(i, order == 0 || std::isinf(order) ? total : std::pow(total, 1 / order));
  }
}

std::vector<Argument> sample_correction(SampleBuilder& s) {
  return {s.free_tensor({3, 5, 37}), std::vector<Expr>{s.constant(2)}, 1.0, true};
}
std::vector<Sample> samples_correction() {
  return {{"last", sample_correction, float_dtypes(), true}};
}
std::vector<Sample> samples_unbiased() {
  return {{"outer",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {s.free_tensor({3, 5, 7}), std::vector<Expr>{s.constant(0), s.constant(1)},
                     false, false};
           },
           float_dtypes(), true}};
}
std::vector<Sample> samples_whole() {
  return {{"whole",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {s.free_tensor({3, 5}), true};
           },
           float_dtypes(), true}};
}
std::vector<Sample> samples_norm() {
  return {{"two",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {s.free_tensor({3, 37}), 2.0, std::vector<Expr>{s.constant(1)}, true};
           },
           float_dtypes()},
          {"three",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {s.free_tensor({3, 37}), 3.0, std::vector<Expr>{s.constant(0)}, false};
           },
           float_dtypes()},
          {"max",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {s.free_tensor({3, 37}), std::numeric_limits<double>::infinity(),
                     std::vector<Expr>{s.constant(1)}, false};
           },
           float_dtypes(), true}};
}
std::vector<Sample> samples_norm_whole() {
  return {{"two",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {s.free_tensor({3, 37}), 2.0};
           },
           float_dtypes()}};
}

constexpr std::string_view kSchemaCorrection =
    "(self: tensor, dim: optional_integer_list = none, correction: optional_scalar = none, "
    "keepdim: boolean = false) -> tensor";
constexpr std::string_view kSchemaCorrection2 =
    "(self: tensor, dim: optional_integer_list = none, correction: optional_scalar = none, "
    "keepdim: boolean = false) -> tensor, tensor";
constexpr std::string_view kSchemaUnbiased =
    "(self: tensor, dim: optional_integer_list, unbiased: boolean = true, "
    "keepdim: boolean = false) -> tensor";
constexpr std::string_view kSchemaUnbiased2 =
    "(self: tensor, dim: optional_integer_list, unbiased: boolean = true, "
    "keepdim: boolean = false) -> tensor, tensor";
constexpr std::string_view kSchemaWhole = "(self: tensor, unbiased: boolean = true) -> tensor";
constexpr std::string_view kSchemaWhole2 =
    "(self: tensor, unbiased: boolean = true) -> tensor, tensor";

template <Form form, bool deviation, bool with_mean, bool in_own_dtype = false>
constexpr OpDef row(std::string_view name, std::string_view schema, std::string_view aten,
                    std::vector<Sample> (*samples)()) {
  return {.name = name,
          .schema = schema,
          .doc = in_own_dtype ? "As var_mean, accumulated in the dtype of the operand."
                 : deviation  ? "Standard deviation; with correction 1, of a sample."
                              : "Variance; with correction 1, of a sample.",
          .traits = Trait::reduction,
          .infer = infer_variance < form,
          with_mean ? 2 : 1 >,
          .lower = lower_variance<form, deviation, in_own_dtype>,
          .reference = reference_variance<form, deviation>,
          .aten = aten,
          .is_imported = !in_own_dtype,
          .samples = samples};
}

constexpr OpDef kVariance[] = {
    {.name = "linalg_vector_norm",
     .schema = "(self: tensor, ord: scalar = 2, dim: optional_integer_list = none, "
               "keepdim: boolean = false, dtype: optional_dtype = none) -> tensor",
     .doc = "(sum |x|^ord)^(1/ord); also 0 (count of nonzeros) and infinities.",
     .traits = Trait::reduction,
     .infer = infer_norm<kVectorNorm>,
     .lower = lower_norm<kVectorNorm>,
     .reference = reference_norm<kVectorNorm>,
     .aten = "aten::linalg_vector_norm",
     .samples = samples_norm},
    {.name = "norm",
     .schema = "(self: tensor, p: optional_scalar = 2) -> tensor",
     .doc = "Vector norm of all elements.",
     .traits = Trait::reduction,
     .infer = infer_norm<kNormWhole>,
     .lower = lower_norm<kNormWhole>,
     .reference = reference_norm<kNormWhole>,
     .aten = "aten::norm.Scalar",
     .samples = samples_norm_whole},
    {.name = "norm_dims",
     .schema = "(self: tensor, p: optional_scalar, dim: optional_integer_list, "
               "keepdim: boolean = false) -> tensor",
     .doc = "Vector norm over dimensions.",
     .traits = Trait::reduction,
     .infer = infer_norm<kNormDims>,
     .lower = lower_norm<kNormDims>,
     .reference = reference_norm<kNormDims>,
     .aten = "aten::norm.ScalarOpt_dim",
     .samples = samples_norm},
    row<Form::correction, true, false>("std", kSchemaCorrection, "aten::std.correction",
                                       samples_correction),
    row<Form::unbiased, true, false>("std_dim", kSchemaUnbiased, "aten::std.dim", samples_unbiased),
    row<Form::correction, true, true>("std_mean", kSchemaCorrection2, "aten::std_mean.correction",
                                      samples_correction),
    row<Form::whole, true, false>("std_whole", kSchemaWhole, "aten::std", samples_whole),
    row<Form::correction, false, false>("var", kSchemaCorrection, "aten::var.correction",
                                        samples_correction),
    row<Form::unbiased, false, false>("var_dim", kSchemaUnbiased, "aten::var.dim",
                                      samples_unbiased),
    row<Form::correction, false, true>("var_mean", kSchemaCorrection2, "aten::var_mean.correction",
                                       samples_correction),
    row<Form::unbiased, false, true>("var_mean_dim", kSchemaUnbiased2, "aten::var_mean.dim",
                                     samples_unbiased),
    row<Form::whole, false, true>("var_mean_whole", kSchemaWhole2, "aten::var_mean", samples_whole),
    row<Form::whole, false, false>("var_whole", kSchemaWhole, "aten::var", samples_whole),
    // What batch norm is decomposed into, which says what it accumulates in.
    row<Form::correction, false, true, true>("moments", kSchemaCorrection2,
                                             "aten::var_mean.correction", samples_correction),
};

}  // namespace

std::span<const OpDef> variance_ops() { return kVariance; }

}  // namespace inkle::ops
