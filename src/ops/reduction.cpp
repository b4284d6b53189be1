// Rows that reduce a tensor to sums, products, means, extremes and truth values. Floats accumulate
// in f32 or f64 and are rounded once; integer sums and products are i64.
#include <cmath>
#include <limits>

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

// Where a row keeps its optional arguments; -1: it has none.
struct Positions {
  int dim = -1, keepdim = -1, dtype = -1;
};
constexpr Positions kWhole{};
constexpr Positions kWholeDtype{.dtype = 1};
constexpr Positions kDim{.dim = 1, .keepdim = 2};
constexpr Positions kDimDtype{.dim = 1, .keepdim = 2, .dtype = 3};

template <class Source>
Axes axes_at(const Source& in, const Positions& p, std::size_t rank) {
  return p.dim < 0 ? Axes::all(rank) : axes_of(in, static_cast<std::size_t>(p.dim), rank);
}
template <class Source>
bool keepdim_at(const Source& in, const Positions& p) {
  return p.keepdim >= 0 && in.boolean(static_cast<std::size_t>(p.keepdim));
}
std::optional<DType> dtype_at(const Inference& in, const Positions& p) {
  return p.dtype < 0 ? std::nullopt : in.dtype(static_cast<std::size_t>(p.dtype));
}

Types reduced_type(Inference& in, const Positions& p, DType dtype) {
  const Type& x = infer::computable(in, 0);
  const Axes axes = axes_at(in, p, x.rank());
  return {infer::make(x, dtype, axes.result(in.context(), x.sizes, keepdim_at(in, p)))};
}

// Sums and products: the dtype asked for, else i64 for integers and bool.
template <Positions p>
Types infer_total(Inference& in) {
  const DType own = infer::computable(in, 0).dtype;
  return reduced_type(in, p, dtype_at(in, p).value_or(abi::is_float(own) ? own : DType::i64));
}
template <Positions p>
Types infer_mean(Inference& in) {
  const DType dtype = dtype_at(in, p).value_or(infer::computable(in, 0).dtype);
  if (!abi::is_float(dtype)) in.fail("the mean of integers needs a dtype");
  return reduced_type(in, p, dtype);
}
template <Positions p>
Types infer_same_dtype(Inference& in) {
  const Type& x = infer::computable(in, 0);
  const Axes axes = axes_at(in, p, x.rank());
  for (const Expr size : axes.reduced(in.context(), x.sizes)) {
    if (size.is_constant(0)) in.fail("a dimension to reduce is empty");
  }
  return reduced_type(in, p, x.dtype);
}
template <Positions p>
Types infer_truth(Inference& in) {
  const DType own = infer::computable(in, 0).dtype;
  return reduced_type(in, p, own == DType::u8 ? DType::u8 : DType::boolean);
}

// One reduction nest over argument 0; the element is cast to `element_dtype` first.
Tensor record(Lowering& l, const Positions& p, ReduceOp op, DType element_dtype, DType accumulator,
              DType dtype) {
  const Tensor& x = l.tensor(0);
  const Axes axes = axes_at(l.args(), p, x.rank());
  return l.reduce(op, axes.kept(x.sizes), axes.reduced(l.context(), x.sizes), accumulator, {dtype},
                  [&](BodyBuilder& b, Indices outer, Indices inner) {
                    return element_as(l, b, x, axes.join(outer, inner), element_dtype);
                  })[0];
}
void finish(Lowering& l, const Positions& p, const Tensor& t) {
  const Axes axes = axes_at(l.args(), p, l.tensor(0).rank());
  l.result(keep_dims(l, t, axes, keepdim_at(l.args(), p)));
}

template <ReduceOp op, Positions p>
void lower_total(Lowering& l) {
  const DType dtype = l.result_type().dtype;
  finish(l, p, record(l, p, op, dtype, abi::compute_type(dtype), dtype));
}
template <Positions p>
void lower_mean(Lowering& l) {
  const DType dtype = l.result_type().dtype;
  const DType compute = abi::compute_type(dtype);
  const Tensor& x = l.tensor(0);
  const Tensor sum = record(l, p, ReduceOp::sum, dtype, compute, compute);
  const Sizes reduced = axes_at(l.args(), p, x.rank()).reduced(l.context(), x.sizes);
  finish(l, p, l.pointwise(sum.sizes, dtype, [&](BodyBuilder& b, Indices i) {
    return b.div(l.element(b, sum, i), count_value(b, reduced, compute));
  }));
}
template <ReduceOp op, Positions p>
void lower_extreme(Lowering& l) {
  const DType dtype = l.result_type().dtype;
  if (dtype == DType::boolean) {
    const ReduceOp logical = op == ReduceOp::max ? ReduceOp::any : ReduceOp::all;
    finish(l, p, record(l, p, logical, dtype, dtype, dtype));
  } else {
    finish(l, p, record(l, p, op, dtype, abi::compute_type(dtype), dtype));
  }
}
template <ReduceOp op, Positions p>
void lower_truth(Lowering& l) {
  finish(l, p, record(l, p, op, DType::boolean, DType::boolean, l.result_type().dtype));
}

template <class F>
void reference_groups(Evaluation& e, const Positions& p, const RefTensor& x, const F& f) {
  const auto groups = reduction_groups(x, axes_at(e, p, x.rank()));
  for (std::size_t i = 0; i < groups.size(); ++i) f(i, groups[i]);
}
template <bool is_product, Positions p>
void reference_total(Evaluation& e) {
  RefTensor& y = e.result();
  const RefTensor x = cast(e.tensor(0), y.dtype);
  reference_groups(e, p, x, [&](std::size_t i, const std::vector<std::size_t>& group) {
    double real = is_product ? 1 : 0;
    std::uint64_t integer = is_product ? 1 : 0;
    for (const std::size_t j : group) {
      real = is_product ? real * x.real(j) : real + x.real(j);
      const auto element = static_cast<std::uint64_t>(x.is_real() ? 0 : x.integer(j));
      integer = is_product ? integer * element : integer + element;
    }
    if (y.is_real())
      y.set(i, real);
    else
      y.set(i, static_cast<std::int64_t>(integer));
  });
}
template <Positions p>
void reference_mean(Evaluation& e) {
  const RefTensor x = cast(e.tensor(0), e.result().dtype);
  reference_groups(e, p, x, [&](std::size_t i, const std::vector<std::size_t>& group) {
    double sum = 0;
    for (const std::size_t j : group) sum += x.real(j);
    e.result().set(i, sum / static_cast<double>(group.size()));
  });
}
template <bool is_max, Positions p>
void reference_extreme(Evaluation& e) {
  const RefTensor& x = e.tensor(0);
  reference_groups(e, p, x, [&](std::size_t i, const std::vector<std::size_t>& group) {
    std::size_t best = group.front();
    for (const std::size_t j : group) {
      const bool better =
          x.is_real() ? (is_max ? x.real(j) > x.real(best) : x.real(j) < x.real(best))
                      : (is_max ? x.integer(j) > x.integer(best) : x.integer(j) < x.integer(best));
      if (!std::isnan(x.real(best)) && (better || std::isnan(x.real(j)))) best = j;
    }
    e.result().copy_element(i, x, best);
  });
}
template <bool is_any, Positions p>
void reference_truth(Evaluation& e) {
  const RefTensor& x = e.tensor(0);
  reference_groups(e, p, x, [&](std::size_t i, const std::vector<std::size_t>& group) {
    bool truth = !is_any;
    for (const std::size_t j : group) {
      const bool element = x.is_real() ? x.real(j) != 0 : x.integer(j) != 0;
      truth = is_any ? truth || element : truth && element;
    }
    e.result().set(i, std::int64_t{truth});
  });
}

// log(sum(exp(x))) with the maximum taken out; integers become f32.
Types infer_logsumexp(Inference& in) {
  const DType own = infer::computable(in, 0).dtype;
  return reduced_type(in, kDim, abi::is_float(own) ? own : DType::f32);
}
void lower_logsumexp(Lowering& l) {
  const DType dtype = l.result_type().dtype;
  const DType compute = abi::compute_type(dtype);
  const Tensor& x = l.tensor(0);
  const Axes axes = axes_of(l.args(), 1, x.rank());
  const Tensor top = record(l, kDim, ReduceOp::max, dtype, compute, compute);
  // An infinite maximum counts as 0, so that no infinity is subtracted from itself.
  const auto shift = [&](BodyBuilder& b, Indices outer) {
    const Val m = l.element(b, top, outer);
    return b.select(b.unary(Opcode::is_inf, m), b.constant(compute, 0.0), m);
  };
  const Tensor sum =
      l.reduce(ReduceOp::sum, top.sizes, axes.reduced(l.context(), x.sizes), compute, {compute},
               [&](BodyBuilder& b, Indices outer, Indices inner) {
                 const Val v = b.cast(element_as(l, b, x, axes.join(outer, inner), dtype), compute);
                 return b.unary(Opcode::exp, b.sub(v, shift(b, outer)));
               })[0];
  finish(l, kDim, l.pointwise(sum.sizes, dtype, [&](BodyBuilder& b, Indices i) {
    return b.add(b.unary(Opcode::log, l.element(b, sum, i)), shift(b, i));
  }));
}
void reference_logsumexp(Evaluation& e) {
  const RefTensor& x = e.tensor(0);
  reference_groups(e, kDim, x, [&](std::size_t i, const std::vector<std::size_t>& group) {
    double top = -std::numeric_limits<double>::infinity();
    for (const std::size_t j : group) top = std::max(top, x.real(j));
    if (std::isinf(top)) top = 0;
    double sum = 0;
    for (const std::size_t j : group) sum += std::exp(x.real(j) - top);
    e.result().set(i, std::log(sum) + top);
  });
}

std::vector<Argument> sample_whole(SampleBuilder& s) { return {s.free_tensor({3, 5, 7})}; }
std::vector<Argument> sample_last(SampleBuilder& s) {
  return {s.free_tensor({3, 5, 37}), std::vector<Expr>{s.constant(-1)}, true};
}
std::vector<Argument> sample_outer(SampleBuilder& s) {
  return {s.free_tensor({3, 5, 7}), std::vector<Expr>{s.constant(0), s.constant(1)}, false};
}
std::vector<Argument> sample_one_dim(SampleBuilder& s) {
  return {s.free_tensor({3, 5, 7}), s.constant(1), false};
}
std::vector<Sample> samples_whole() { return {{"whole", sample_whole, number_dtypes()}}; }
std::vector<Sample> samples_whole_real() { return {{"whole", sample_whole, float_dtypes()}}; }
std::vector<Sample> samples_dims() {
  return {{"last", sample_last, number_dtypes()}, {"outer", sample_outer, number_dtypes()}};
}
std::vector<Sample> samples_dims_real() {
  return {{"last", sample_last, float_dtypes()}, {"outer", sample_outer, float_dtypes()}};
}
std::vector<Sample> samples_extreme() {
  return {{"last", sample_last, number_dtypes(), true},
          {"outer", sample_outer, number_dtypes(), true}};
}
std::vector<Sample> samples_whole_extreme() {
  return {{"whole", sample_whole, number_dtypes(), true}};
}
std::vector<Sample> samples_one_dim() { return {{"middle", sample_one_dim, number_dtypes()}}; }

constexpr std::string_view kSchemaWhole = "(self: tensor) -> tensor";
constexpr std::string_view kSchemaWholeDtype =
    "(self: tensor, dtype: optional_dtype = none) -> tensor";
constexpr std::string_view kSchemaDims =
    "(self: tensor, dim: optional_integer_list = none, keepdim: boolean = false) -> tensor";
constexpr std::string_view kSchemaDim =
    "(self: tensor, dim: integer, keepdim: boolean = false) -> tensor";
constexpr std::string_view kSchemaDimsDtype =
    "(self: tensor, dim: optional_integer_list, keepdim: boolean = false, "
    "dtype: optional_dtype = none) -> tensor";
constexpr std::string_view kSchemaDimDtype =
    "(self: tensor, dim: integer, keepdim: boolean = false, dtype: optional_dtype = none) "
    "-> tensor";

constexpr OpDef kReduction[] = {
    {.name = "all",
     .schema = kSchemaWhole,
     .doc = "True if all elements are true.",
     .traits = Trait::reduction,
     .infer = infer_truth<kWhole>,
     .lower = lower_truth<ReduceOp::all, kWhole>,
     .reference = reference_truth<false, kWhole>,
     .aten = "aten::all",
     .samples = samples_whole},
    {.name = "all_dim",
     .schema = kSchemaDim,
     .doc = "True where all elements along dim are true.",
     .traits = Trait::reduction,
     .infer = infer_truth<kDim>,
     .lower = lower_truth<ReduceOp::all, kDim>,
     .reference = reference_truth<false, kDim>,
     .aten = "aten::all.dim",
     .samples = samples_one_dim},
    {.name = "all_dims",
     .schema = kSchemaDims,
     .doc = "True where all elements are true.",
     .traits = Trait::reduction,
     .infer = infer_truth<kDim>,
     .lower = lower_truth<ReduceOp::all, kDim>,
     .reference = reference_truth<false, kDim>,
     .aten = "aten::all.dims",
     .samples = samples_dims},
    {.name = "amax",
     .schema = kSchemaDims,
     .doc = "Largest element; a NaN wins.",
     .traits = Trait::reduction,
     .infer = infer_same_dtype<kDim>,
     .lower = lower_extreme<ReduceOp::max, kDim>,
     .reference = reference_extreme<true, kDim>,
     .aten = "aten::amax",
     .samples = samples_extreme},
    {.name = "amin",
     .schema = kSchemaDims,
     .doc = "Smallest element; a NaN wins.",
     .traits = Trait::reduction,
     .infer = infer_same_dtype<kDim>,
     .lower = lower_extreme<ReduceOp::min, kDim>,
     .reference = reference_extreme<false, kDim>,
     .aten = "aten::amin",
     .samples = samples_extreme},
    {.name = "any",
     .schema = kSchemaWhole,
     .doc = "True if any element is true.",
     .traits = Trait::reduction,
     .infer = infer_truth<kWhole>,
     .lower = lower_truth<ReduceOp::any, kWhole>,
     .reference = reference_truth<true, kWhole>,
     .aten = "aten::any",
     .samples = samples_whole},
    {.name = "any_dim",
     .schema = kSchemaDim,
     .doc = "True where any element along dim is true.",
     .traits = Trait::reduction,
     .infer = infer_truth<kDim>,
     .lower = lower_truth<ReduceOp::any, kDim>,
     .reference = reference_truth<true, kDim>,
     .aten = "aten::any.dim",
     .samples = samples_one_dim},
    {.name = "any_dims",
     .schema = kSchemaDims,
     .doc = "True where any element is true.",
     .traits = Trait::reduction,
     .infer = infer_truth<kDim>,
     .lower = lower_truth<ReduceOp::any, kDim>,
     .reference = reference_truth<true, kDim>,
     .aten = "aten::any.dims",
     .samples = samples_dims},
    {.name = "logsumexp",
     .schema = kSchemaDims,
     .doc = "log(sum(exp(x))) without overflow.",
     .traits = Trait::reduction,
     .infer = infer_logsumexp,
     .lower = lower_logsumexp,
     .reference = reference_logsumexp,
     .aten = "aten::logsumexp",
     .samples = samples_dims_real},
    {.name = "max",
     .schema = kSchemaWhole,
     .doc = "Largest of all elements; a NaN wins.",
     .traits = Trait::reduction,
     .infer = infer_same_dtype<kWhole>,
     .lower = lower_extreme<ReduceOp::max, kWhole>,
     .reference = reference_extreme<true, kWhole>,
     .aten = "aten::max",
     .samples = samples_whole_extreme},
    {.name = "mean",
     .schema = kSchemaWholeDtype,
     .doc = "Arithmetic mean of all elements.",
     .traits = Trait::reduction,
     .infer = infer_mean<kWholeDtype>,
     .lower = lower_mean<kWholeDtype>,
     .reference = reference_mean<kWholeDtype>,
     .aten = "aten::mean",
     .samples = samples_whole_real},
    {.name = "mean_dim",
     .schema = kSchemaDimsDtype,
     .doc = "Arithmetic mean over dimensions.",
     .traits = Trait::reduction,
     .infer = infer_mean<kDimDtype>,
     .lower = lower_mean<kDimDtype>,
     .reference = reference_mean<kDimDtype>,
     .aten = "aten::mean.dim",
     .samples = samples_dims_real},
    {.name = "min",
     .schema = kSchemaWhole,
     .doc = "Smallest of all elements; a NaN wins.",
     .traits = Trait::reduction,
     .infer = infer_same_dtype<kWhole>,
     .lower = lower_extreme<ReduceOp::min, kWhole>,
     .reference = reference_extreme<false, kWhole>,
     .aten = "aten::min",
     .samples = samples_whole_extreme},
    {.name = "prod",
     .schema = kSchemaWholeDtype,
     .doc = "Product of all elements.",
     .traits = Trait::reduction,
     .infer = infer_total<kWholeDtype>,
     .lower = lower_total<ReduceOp::prod, kWholeDtype>,
     .reference = reference_total<true, kWholeDtype>,
     .aten = "aten::prod",
     .samples = samples_whole},
    {.name = "prod_dim",
     .schema = kSchemaDimDtype,
     .doc = "Product along a dimension.",
     .traits = Trait::reduction,
     .infer = infer_total<kDimDtype>,
     .lower = lower_total<ReduceOp::prod, kDimDtype>,
     .reference = reference_total<true, kDimDtype>,
     .aten = "aten::prod.dim_int",
     .samples = samples_one_dim},
    {.name = "sum",
     .schema = kSchemaWholeDtype,
     .doc = "Sum of all elements.",
     .traits = Trait::reduction,
     .infer = infer_total<kWholeDtype>,
     .lower = lower_total<ReduceOp::sum, kWholeDtype>,
     .reference = reference_total<false, kWholeDtype>,
     .aten = "aten::sum",
     .samples = samples_whole},
    {.name = "sum_dim",
     .schema = kSchemaDimsDtype,
     .doc = "Sum over dimensions.",
     .traits = Trait::reduction,
     .infer = infer_total<kDimDtype>,
     .lower = lower_total<ReduceOp::sum, kDimDtype>,
     .reference = reference_total<false, kDimDtype>,
     .aten = "aten::sum.dim_IntList",
     .samples = samples_dims},
};

}  // namespace

std::span<const OpDef> reduction_ops() { return kReduction; }

}  // namespace inkle::ops
