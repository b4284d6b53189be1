// Dropout where it is the identity: in inference. In training its random mask is the host's.
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

// (input, p, train?): a missing train means training.
bool drops(const Inference& in) { return (in.is_none(2) || in.boolean(2)) && in.real(1) != 0; }
void check_identity(Inference& in) {
  if (drops(in)) unsupported("{}: random masks are the host's", in.op().name);
}
Types infer_dropout(Inference& in) {
  const Type& x = infer::computable(in, 0);
  check_identity(in);
  return {infer::make(x, x.dtype, x.sizes)};
}
Types infer_native_dropout(Inference& in) {
  const Type& x = infer::computable(in, 0);
  check_identity(in);
  return {infer::make(x, x.dtype, x.sizes), infer::make(x, DType::boolean, x.sizes)};
}
void lower_dropout(Lowering& l) {
  l.result(l.tensor(0));
  if (l.node().results.size() == 1 || !l.is_used(1)) return;
  l.result(1, l.pointwise(l.tensor(0).sizes, DType::boolean, [](BodyBuilder& b, Indices) {
    return b.constant(DType::boolean, std::int64_t{1});
  }));
}
void reference_dropout(Evaluation& e) {
  const RefTensor& x = e.tensor(0);
  for (std::size_t i = 0; i < x.count(); ++i) {
    e.result().copy_element(i, x, i);
    if (e.result_count() > 1) e.result(1).set(i, std::int64_t{1});
  }
}

std::vector<Sample> samples_dropout() {
  return {{"inference",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {s.free_tensor({3, 5}), 0.5, false};
           },
           float_dtypes()}};
}

constexpr OpDef kDropout[] = {
    {.name = "dropout",
     .schema = "(input: tensor, p: real, train: boolean) -> tensor",
     .doc = "The input itself; in training the host's dropout.",
     .infer = infer_dropout,
     .lower = lower_dropout,
     .reference = reference_dropout,
     .aten = "aten::dropout aten::feature_dropout",
     .samples = samples_dropout},
    {.name = "native_dropout",
     .schema = "(input: tensor, p: real, train: optional_boolean) -> tensor, tensor",
     .doc = "The input itself and a mask of ones; in training the host's dropout.",
     .infer = infer_native_dropout,
     .lower = lower_dropout,
     .reference = reference_dropout,
     .aten = "aten::native_dropout",
     .samples = samples_dropout},
};

}  // namespace

std::span<const OpDef> dropout_ops() { return kDropout; }

}  // namespace inkle::ops
