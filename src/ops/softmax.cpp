// Softmax and its logarithm: a maximum, a sum of exponentials and one pointwise nest, which the
// scheduler puts in one kernel that reads each row once. All inside is f32 or f64; the result is
// rounded once.
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

enum class Kind { plain, logarithm, safe };

Types softmax_type(Inference& in, DType dtype) {
  const Type& x = infer::computable(in, 0);
  if (!abi::is_float(dtype)) in.fail("needs a floating-point dtype");
  (void)in.dim(in.constant_integer(1), x.rank());
  return {infer::make(x, dtype, x.sizes)};
}
// The aten composites: the operand is cast to the dtype asked for first.
Types infer_with_dtype(Inference& in) {
  return softmax_type(in, in.dtype(2).value_or(infer::computable(in, 0).dtype));
}
// half_to_float: f16 in, f32 out.
Types infer_half_to_float(Inference& in) {
  return softmax_type(in, in.boolean(2) ? DType::f32 : infer::computable(in, 0).dtype);
}

template <Kind kind>
void lower_softmax(Lowering& l) {
  const DType dtype = l.result_type().dtype;
  const DType compute = abi::compute_type(dtype);
  const Tensor& x = l.tensor(0);
  const Axes axes = Axes::only(l.args().dim(l.args().constant_integer(1), x.rank()), x.rank());
  const Sizes kept = axes.kept(x.sizes);
  const Sizes reduced = axes.reduced(l.context(), x.sizes);
  const auto element = [&](BodyBuilder& b, Indices i) {
    return b.cast(element_as(l, b, x, i, dtype), compute);
  };
  const Tensor top = l.reduce(ReduceOp::max, kept, reduced, compute, {compute},
                              [&](BodyBuilder& b, Indices outer, Indices inner) {
                                return element(b, axes.join(outer, inner));
                              })[0];
  const Tensor sum = l.reduce(ReduceOp::sum, kept, reduced, compute, {compute},
                              [&](BodyBuilder& b, Indices outer, Indices inner) {
                                const Val v = element(b, axes.join(outer, inner));
                                return b.unary(Opcode::exp, b.sub(v, l.element(b, top, outer)));
                              })[0];
  l.result(l.pointwise(x.sizes, dtype, [&](BodyBuilder& b, Indices i) {
    const std::vector<Expr> row = axes.kept_indices(i);
    const Val m = l.element(b, top, row);
    const Val s = l.element(b, sum, row);
    const Val shifted = b.sub(element(b, i), m);
    if (kind == Kind::logarithm) return b.sub(shifted, b.unary(Opcode::log, s));
    const Val y = b.div(b.unary(Opcode::exp, shifted), s);
    if (kind == Kind::plain) return y;
    const Val none = b.constant(compute, -std::numeric_limits<double>::infinity());
    return b.select(b.binary(Opcode::equal, m, none), b.constant(compute, 0.0), y);
  }));
}

template <Kind kind>
void reference_softmax(Evaluation& e) {
  RefTensor& y = e.result();
  const RefTensor x = cast(e.tensor(0), y.dtype);
  const Axes axes = Axes::only(e.dim(e.integer(1), x.rank()), x.rank());
  for (const auto& group : reduction_groups(x, axes)) {
    double top = -std::numeric_limits<double>::infinity();
    for (const std::size_t j : group) top = std::max(top, x.real(j));
    double sum = 0;
    for (const std::size_t j : group) sum += std::exp(x.real(j) - top);
    for (const std::size_t j : group) {
      const double shifted = x.real(j) - top;
      const bool masked = kind == Kind::safe && std::isinf(top) && top < 0;
      y.set(j, masked                    ? 0.0
               : kind == Kind::logarithm ? shifted - std::log(sum)
                                         : std::exp(shifted) / sum);
    }
  }
}

template <bool half_to_float>
std::vector<Argument> sample_arguments(SampleBuilder& s, std::vector<std::int64_t> sizes,
                                       std::int64_t dim) {
  std::vector<Argument> arguments = {s.free_tensor(std::move(sizes), -8, 8), s.constant(dim)};
  if (half_to_float) arguments.emplace_back(false);
  return arguments;
}
template <bool half_to_float>
std::vector<Sample> samples_softmax() {
  return {{"last",
           [](SampleBuilder& s) {
             return sample_arguments<half_to_float>(s, {3, 4, 37}, -1);
           },
           float_dtypes()},
          {"middle",
           [](SampleBuilder& s) {
             return sample_arguments<half_to_float>(s, {3, 19, 5}, 1);
           },
           float_dtypes()}};
}

constexpr std::string_view kSchemaDtype =
    "(self: tensor, dim: integer, dtype: optional_dtype = none) -> tensor";
constexpr std::string_view kSchemaHalf =
    "(self: tensor, dim: integer, half_to_float: boolean) -> tensor";

constexpr OpDef kSoftmax[] = {
    {.name = "_log_softmax",
     .schema = kSchemaHalf,
     .doc = "log(exp(x) / sum(exp(x))) along a dimension.",
     .traits = Trait::reduction,
     .infer = infer_half_to_float,
     .lower = lower_softmax<Kind::logarithm>,
     .reference = reference_softmax<Kind::logarithm>,
     .aten = "aten::_log_softmax",
     .samples = samples_softmax<true>},
    {.name = "_safe_softmax",
     .schema = kSchemaDtype,
     .doc = "Softmax along a dimension; rows of minus infinity give 0.",
     .traits = Trait::reduction,
     .infer = infer_with_dtype,
     .lower = lower_softmax<Kind::safe>,
     .reference = reference_softmax<Kind::safe>,
     .aten = "aten::_safe_softmax",
     .samples = samples_softmax<false>},
    {.name = "_softmax",
     .schema = kSchemaHalf,
     .doc = "exp(x) / sum(exp(x)) along a dimension.",
     .traits = Trait::reduction,
     .infer = infer_half_to_float,
     .lower = lower_softmax<Kind::plain>,
     .reference = reference_softmax<Kind::plain>,
     .aten = "aten::_softmax",
     .samples = samples_softmax<true>},
    {.name = "log_softmax",
     .schema = kSchemaDtype,
     .doc = "log(exp(x) / sum(exp(x))) along a dimension, after a cast to dtype.",
     .traits = Trait::reduction,
     .infer = infer_with_dtype,
     .lower = lower_softmax<Kind::logarithm>,
     .reference = reference_softmax<Kind::logarithm>,
     .aten = "aten::log_softmax.int",
     .samples = samples_softmax<false>},
    {.name = "softmax",
     .schema = kSchemaDtype,
     .doc = "exp(x) / sum(exp(x)) along a dimension, after a cast to dtype.",
     .traits = Trait::reduction,
     .infer = infer_with_dtype,
     .lower = lower_softmax<Kind::plain>,
     .reference = reference_softmax<Kind::plain>,
     .aten = "aten::softmax.int",
     .samples = samples_softmax<false>},
};

}  // namespace

std::span<const OpDef> softmax_ops() { return kSoftmax; }

}  // namespace inkle::ops
