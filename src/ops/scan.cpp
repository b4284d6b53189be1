// Running sums and products along a dimension.
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
using loop::ReduceOp;

// (self, dim, dtype?): the dtype asked for, else i64 for integers and bool.
Types infer_scan(Inference& in) {
  const Type& x = infer::computable(in, 0);
  (void)in.dim(in.constant_integer(1), x.rank());
  const DType dtype = in.dtype(2).value_or(abi::is_float(x.dtype) ? x.dtype : DType::i64);
  return {infer::make(x, dtype, x.sizes)};
}
// As eager has it: on the processor f32 is added up in f64, where it may overflow and come back.
DType accumulator_of(const Type& result) {
  const bool is_wide = result.dtype == DType::f32 && result.device.kind == abi::DeviceKind::cpu;
  return is_wide ? DType::f64 : abi::compute_type(result.dtype);
}
template <ReduceOp op>
void lower_scan(Lowering& l) {
  const Tensor& x = l.tensor(0);
  const DType dtype = l.result_type().dtype;
  const auto element = [&](BodyBuilder& b, Indices i) { return element_as(l, b, x, i, dtype); };
  if (x.rank() == 0) {
    l.result(l.pointwise(x.sizes, dtype, element));
    return;
  }
  const std::size_t dim = l.args().dim(l.args().constant_integer(1), x.rank());
  l.result(l.scan(op, x.sizes, dim, accumulator_of(l.result_type()), dtype, element));
}
template <bool is_product>
void reference_scan(Evaluation& e) {
  RefTensor& y = e.result();
  const RefTensor x = cast(e.tensor(0), y.dtype);
  const Axes axes = Axes::only(e.dim(e.integer(1), x.rank()), x.rank());
  for (const auto& group : reduction_groups(x, axes)) {
    double real = is_product ? 1 : 0;
    std::uint64_t integer = is_product ? 1 : 0;
    for (const std::size_t j : group) {
      if (x.is_real()) {
        real = is_product ? real * x.real(j) : real + x.real(j);
        y.set(j, real);
      } else {
        const auto v = static_cast<std::uint64_t>(x.integer(j));
        integer = is_product ? integer * v : integer + v;
        y.set(j, static_cast<std::int64_t>(integer));
      }
    }
  }
}

std::vector<Sample> samples_scan() {
  return {{"last",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {s.free_tensor({3, 37}), s.constant(-1)};
           },
           number_dtypes()},
          {"first",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {s.free_tensor({9, 5}), s.constant(0)};
           },
           number_dtypes()}};
}

constexpr std::string_view kSchema =
    "(self: tensor, dim: integer, dtype: optional_dtype = none) -> tensor";

constexpr OpDef kScan[] = {
    {.name = "cumprod",
     .schema = kSchema,
     .doc = "Running product along a dimension.",
     .infer = infer_scan,
     .lower = lower_scan<ReduceOp::prod>,
     .reference = reference_scan<true>,
     .aten = "aten::cumprod",
     .samples = samples_scan},
    {.name = "cumsum",
     .schema = kSchema,
     .doc = "Running sum along a dimension.",
     .infer = infer_scan,
     .lower = lower_scan<ReduceOp::sum>,
     .reference = reference_scan<false>,
     .aten = "aten::cumsum",
     .samples = samples_scan},
};

}  // namespace

std::span<const OpDef> scan_ops() { return kScan; }

}  // namespace inkle::ops
