// Arithmetic composed of other rows: cross products, sums of some elements.
#include "base/error.h"
#include "ops/axes.h"
#include "ops/composite_reference.h"
#include "ops/infer.h"
#include "ops/promotion.h"
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

// --- linalg_cross: (self, other, dim)

Types infer_cross(Inference& in) {
  const Type &x = infer::computable(in, 0), &y = infer::computable(in, 1);
  if (x.dtype != y.dtype) unsupported("linalg_cross: operands of two dtypes");
  if (x.rank() != y.rank()) in.fail("ranks differ");
  const std::size_t dim = in.dim(in.constant_integer(2), x.rank());
  for (const Type* t : {&x, &y}) {
    if (!in.context().guard_equal(t->sizes[dim], in.context().constant(3))) {
      in.fail("the dimension must have 3 elements");
    }
  }
  return {infer::make(x, x.dtype, infer::broadcast(in, x.sizes, y.sizes))};
}
void lower_cross(Lowering& l) {
  const graph::Type& r = l.result_type();
  const std::size_t dim = l.args().dim(l.args().constant_integer(2), r.rank());
  const DType compute = abi::compute_type(r.dtype);
  l.result(l.pointwise(r.sizes, r.dtype, [&](BodyBuilder& b, Indices i) {
    const auto rolled = [&](std::size_t arg, std::int64_t by) {
      std::vector<Expr> at(i.begin(), i.end());
      at[dim] = mod(i[dim] + by, 3);
      return b.cast(l.broadcast_element(b, l.tensor(arg), at), compute);
    };
    return b.sub(b.mul(rolled(0, 1), rolled(1, 2)), b.mul(rolled(0, 2), rolled(1, 1)));
  }));
}
void reference_cross(Evaluation& e) {
  const RefTensor &x = e.tensor(0), &y = e.tensor(1);
  RefTensor& r = e.result();
  const std::size_t dim = e.dim(e.integer(2), r.rank());
  for_each_index(r.sizes, [&](std::span<const std::int64_t> i, std::size_t p) {
    const auto position = [&](const RefTensor& t, std::int64_t by) {
      std::vector<std::int64_t> at(i.begin(), i.end());
      at[dim] = (i[dim] + by) % 3;
      return broadcast_position(t, at);
    };
    const std::size_t a = position(x, 1), b = position(y, 2), c = position(x, 2),
                      d = position(y, 1);
    if (r.is_real())
      r.set(p, x.real(a) * y.real(b) - x.real(c) * y.real(d));
    else
      r.set(p, x.integer(a) * y.integer(b) - x.integer(c) * y.integer(d));
  });
}

// --- nansum: (self, dim?, keepdim, dtype?)

Types infer_nansum(Inference& in) {
  const Type& x = infer::computable(in, 0);
  const Axes axes = axes_of(in, 1, x.rank());
  const DType own = abi::is_float(x.dtype) ? x.dtype : DType::i64;
  const DType dtype = in.dtype(3).value_or(own);
  require_computable(dtype);
  return {infer::make(x, dtype, axes.result(in.context(), x.sizes, in.boolean(2)))};
}
std::vector<ValueId> decompose_nansum(Builder& b, const Node& node) {
  ValueId x = operand_of(node, 0);
  const bool has_nan = abi::is_float(b.type(x).dtype);
  if (has_nan) x = b.node("where", {b.node("isnan", {x}), b.full({}, 0, b.type(x).dtype), x});
  const ValueId sum = b.node("sum_dim", {x, node.args[1], node.args[2], node.args[3]});
  if (!has_nan) return {sum};
  return {b.node("add", {sum, b.context().constant(0)})};  // eager begins at 0: -0.0 alone gives 0
}
std::vector<Sample> samples_cross() {
  return {{"first",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {s.tensor({s.constant(3), s.size(5)}), s.tensor({s.constant(3), s.size(5)}),
                     s.constant(0)};
           },
           number_dtypes()}};
}
std::vector<Sample> samples_sum() {
  return {{"last",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {s.free_tensor({3, 7}), std::vector<Expr>{s.constant(-1)}};
           },
           number_dtypes()}};
}

constexpr OpDef kCompositeMath[] = {
    {.name = "linalg_cross",
     .schema = "(self: tensor, other: tensor, dim: integer = -1) -> tensor",
     .doc = "Cross product of vectors of 3 elements.",
     .infer = infer_cross,
     .lower = lower_cross,
     .reference = reference_cross,
     .aten = "aten::linalg_cross",
     .samples = samples_cross},
    {.name = "nansum",
     .schema = "(self: tensor, dim: optional_integer_list = none, keepdim: boolean = false, "
               "dtype: optional_dtype = none) -> tensor",
     .doc = "Sum of the elements that are not NaN.",
     .traits = Trait::reduction,
     .infer = infer_nansum,
     .decompose = decompose_nansum,
     .reference = composite::ref_nansum,
     .aten = "aten::nansum",
     .samples = samples_sum},
};

}  // namespace

std::span<const OpDef> composite_math_ops() { return kCompositeMath; }

}  // namespace inkle::ops
