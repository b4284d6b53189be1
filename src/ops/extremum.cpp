// Extremes with their positions, and counts. Ties give the first position; a NaN wins.
#include <cmath>

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

// The dtype in which elements are compared.
DType comparison_type(DType dtype) {
  return dtype == DType::boolean ? DType::u8 : abi::compute_type(dtype);
}
Tensor record(Lowering& l, const Axes& axes, ReduceOp op, DType dtype) {
  const Tensor& x = l.tensor(0);
  const DType compare = comparison_type(x.dtype);
  return l.reduce(op, axes.kept(x.sizes), axes.reduced(l.context(), x.sizes), compare, {dtype},
                  [&](BodyBuilder& b, Indices outer, Indices inner) {
                    return element_as(l, b, x, axes.join(outer, inner), compare);
                  })[0];
}
void check_not_empty(Inference& in, const Axes& axes, const Type& x) {
  for (const Expr size : axes.reduced(in.context(), x.sizes)) {
    if (size.is_constant(0)) in.fail("a dimension to reduce is empty");
  }
}
std::size_t first_extreme(const RefTensor& x, const std::vector<std::size_t>& group, bool is_max) {
  std::size_t best = 0;
  for (std::size_t k = 1; k < group.size(); ++k) {
    const double a = x.real(group[k]), b = x.real(group[best]);
    if (std::isnan(b)) break;
    if (std::isnan(a))
      best = k;
    else if (x.is_real() ? (is_max ? a > b : a < b)
                         : (is_max ? x.integer(group[k]) > x.integer(group[best])
                                   : x.integer(group[k]) < x.integer(group[best]))) {
      best = k;
    }
  }
  return best;
}

// --- max.dim and min.dim: (self, dim, keepdim) -> (values, indices)

Types infer_extreme_dim(Inference& in) {
  const Type& x = infer::computable(in, 0);
  const Axes axes = axes_of(in, 1, x.rank());
  check_not_empty(in, axes, x);
  const Sizes sizes = axes.result(in.context(), x.sizes, in.boolean(2));
  return {infer::make(x, x.dtype, sizes), infer::make(x, DType::i64, sizes)};
}
template <bool is_max>
void lower_extreme_dim(Lowering& l) {
  const Axes axes = axes_of(l.args(), 1, l.tensor(0).rank());
  const bool keepdim = l.args().boolean(2);
  if (l.is_used(0)) {
    const ReduceOp op = is_max ? ReduceOp::max : ReduceOp::min;
    l.result(0, keep_dims(l, record(l, axes, op, l.tensor(0).dtype), axes, keepdim));
  }
  if (l.is_used(1)) {
    const ReduceOp op = is_max ? ReduceOp::argmax : ReduceOp::argmin;
    l.result(1, keep_dims(l, record(l, axes, op, DType::i64), axes, keepdim));
  }
}
template <bool is_max>
void reference_extreme_dim(Evaluation& e) {
  const RefTensor& x = e.tensor(0);
  const auto groups = reduction_groups(x, axes_of(e, 1, x.rank()));
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const std::size_t best = first_extreme(x, groups[i], is_max);
    e.result(0).copy_element(i, x, groups[i][best]);
    e.result(1).set(i, static_cast<std::int64_t>(best));
  }
}

// --- argmax and argmin: (self, dim?, keepdim)

Types infer_position(Inference& in) {
  const Type& x = infer::computable(in, 0);
  const Axes axes = axes_of(in, 1, x.rank());
  check_not_empty(in, axes, x);
  return {infer::make(x, DType::i64, axes.result(in.context(), x.sizes, in.boolean(2)))};
}
template <bool is_max>
void lower_position(Lowering& l) {
  const Axes axes = axes_of(l.args(), 1, l.tensor(0).rank());
  const ReduceOp op = is_max ? ReduceOp::argmax : ReduceOp::argmin;
  l.result(keep_dims(l, record(l, axes, op, DType::i64), axes, l.args().boolean(2)));
}
template <bool is_max>
void reference_position(Evaluation& e) {
  const RefTensor& x = e.tensor(0);
  const auto groups = reduction_groups(x, axes_of(e, 1, x.rank()));
  for (std::size_t i = 0; i < groups.size(); ++i) {
    e.result().set(i, static_cast<std::int64_t>(first_extreme(x, groups[i], is_max)));
  }
}

// --- aminmax: (self, dim?, keepdim) -> (min, max)

Types infer_aminmax(Inference& in) {
  const Type& x = infer::computable(in, 0);
  const Axes axes = axes_of(in, 1, x.rank());
  check_not_empty(in, axes, x);
  return Types(2, infer::make(x, x.dtype, axes.result(in.context(), x.sizes, in.boolean(2))));
}
void lower_aminmax(Lowering& l) {
  const Axes axes = axes_of(l.args(), 1, l.tensor(0).rank());
  const bool keepdim = l.args().boolean(2);
  const DType dtype = l.tensor(0).dtype;
  if (l.is_used(0)) l.result(0, keep_dims(l, record(l, axes, ReduceOp::min, dtype), axes, keepdim));
  if (l.is_used(1)) l.result(1, keep_dims(l, record(l, axes, ReduceOp::max, dtype), axes, keepdim));
}
void reference_aminmax(Evaluation& e) {
  const RefTensor& x = e.tensor(0);
  const auto groups = reduction_groups(x, axes_of(e, 1, x.rank()));
  for (std::size_t i = 0; i < groups.size(); ++i) {
    e.result(0).copy_element(i, x, groups[i][first_extreme(x, groups[i], false)]);
    e.result(1).copy_element(i, x, groups[i][first_extreme(x, groups[i], true)]);
  }
}

// --- count_nonzero: (self, dim?)

Types infer_count(Inference& in) {
  const Type& x = infer::computable(in, 0);
  return {infer::make(x, DType::i64, axes_of(in, 1, x.rank()).kept(x.sizes))};
}
void lower_count(Lowering& l) {
  const Tensor& x = l.tensor(0);
  const Axes axes = axes_of(l.args(), 1, x.rank());
  l.result(l.reduce(ReduceOp::sum, axes.kept(x.sizes), axes.reduced(l.context(), x.sizes),
                    DType::i64, {DType::i64}, [&](BodyBuilder& b, Indices outer, Indices inner) {
                      return b.cast(element_as(l, b, x, axes.join(outer, inner), DType::boolean),
                                    DType::i64);
                    })[0]);
}
void reference_count(Evaluation& e) {
  const RefTensor& x = e.tensor(0);
  const auto groups = reduction_groups(x, axes_of(e, 1, x.rank()));
  for (std::size_t i = 0; i < groups.size(); ++i) {
    std::int64_t count = 0;
    for (const std::size_t j : groups[i]) count += x.real(j) != 0 ? 1 : 0;
    e.result().set(i, count);
  }
}

std::vector<Argument> sample_dim(SampleBuilder& s) {
  return {s.free_tensor({3, 19, 5}), s.constant(1), true};
}
std::vector<Argument> sample_last(SampleBuilder& s) {
  return {s.free_tensor({3, 37}), s.constant(-1), false};
}
std::vector<Argument> sample_whole(SampleBuilder& s) {
  return {s.free_tensor({3, 7}), graph::None{}, false};
}
std::vector<Sample> samples_dim() {
  return {{"middle", sample_dim, number_dtypes(), true},
          {"last", sample_last, number_dtypes(), true}};
}
std::vector<Sample> samples_position() {
  return {{"middle", sample_dim, number_dtypes(), true},
          {"whole", sample_whole, number_dtypes(), true}};
}
std::vector<Sample> samples_count() {
  return {{"rows", [](SampleBuilder& s) -> std::vector<Argument> {
             return {s.tensor(DType::i32, {s.size(3), s.size(7)}, -1, 1), s.constant(1)};
           }}};
}

constexpr std::string_view kSchemaDim =
    "(self: tensor, dim: integer, keepdim: boolean = false) -> tensor, tensor";
constexpr std::string_view kSchemaPosition =
    "(self: tensor, dim: optional_integer = none, keepdim: boolean = false) -> tensor";

constexpr OpDef kExtremum[] = {
    {.name = "aminmax",
     .schema = "(self: tensor, dim: optional_integer = none, keepdim: boolean = false) "
               "-> tensor, tensor",
     .doc = "Smallest and largest element.",
     .traits = Trait::reduction,
     .infer = infer_aminmax,
     .lower = lower_aminmax,
     .reference = reference_aminmax,
     .aten = "aten::aminmax",
     .samples = samples_position},
    {.name = "argmax",
     .schema = kSchemaPosition,
     .doc = "Position of the largest element.",
     .traits = Trait::reduction,
     .infer = infer_position,
     .lower = lower_position<true>,
     .reference = reference_position<true>,
     .aten = "aten::argmax",
     .samples = samples_position},
    {.name = "argmin",
     .schema = kSchemaPosition,
     .doc = "Position of the smallest element.",
     .traits = Trait::reduction,
     .infer = infer_position,
     .lower = lower_position<false>,
     .reference = reference_position<false>,
     .aten = "aten::argmin",
     .samples = samples_position},
    {.name = "count_nonzero",
     .schema = "(self: tensor, dim: optional_integer = none) -> tensor",
     .doc = "The number of elements that are not 0.",
     .traits = Trait::reduction,
     .infer = infer_count,
     .lower = lower_count,
     .reference = reference_count,
     .aten = "aten::count_nonzero",
     .samples = samples_count},
    {.name = "max_dim",
     .schema = kSchemaDim,
     .doc = "Largest element along dim, and where it is.",
     .traits = Trait::reduction,
     .infer = infer_extreme_dim,
     .lower = lower_extreme_dim<true>,
     .reference = reference_extreme_dim<true>,
     .aten = "aten::max.dim",
     .samples = samples_dim},
    {.name = "min_dim",
     .schema = kSchemaDim,
     .doc = "Smallest element along dim, and where it is.",
     .traits = Trait::reduction,
     .infer = infer_extreme_dim,
     .lower = lower_extreme_dim<false>,
     .reference = reference_extreme_dim<false>,
     .aten = "aten::min.dim",
     .samples = samples_dim},
};

}  // namespace

std::span<const OpDef> extremum_ops() { return kExtremum; }

}  // namespace inkle::ops
