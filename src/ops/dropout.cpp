// Dropout where it is the identity, in inference; and with a mask that Philox draws element by
// element from a seed of the host, so that the same seed draws the same mask again.
#include "base/error.h"
#include "ops/axes.h"
#include "ops/infer.h"
#include "ops/samples.h"
#include "ops/seeded.h"
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
  if (drops(in)) unsupported("{}: the host draws the random mask", in.op().name);
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

// --- With a seed: (input, seed, number, p). `number` tells apart the masks of one seed.

using loop::dropout_scale;
using loop::dropped_below;

Types infer_seeded(Inference& in) {
  const Type& x = infer::computable(in, 0);
  seeded::check(in, 1);
  if (!abi::is_float(x.dtype)) in.fail("needs floats");
  if (!(in.real(3) >= 0 && in.real(3) <= 1)) in.fail("p is a probability");
  return {infer::make(x, x.dtype, x.sizes)};
}
Types infer_seeded_mask(Inference& in) {
  Types types = infer_seeded(in);
  types.push_back(infer::make(types[0], DType::boolean, types[0].sizes));
  return types;
}

Val is_kept(Lowering& l, BodyBuilder& b, Indices i) {
  const Val bits = seeded::word(l, b, 1, l.tensor(0).sizes, i);
  return b.logical_not(b.less(bits, b.constant(DType::i64, dropped_below(l.args().real(3)))));
}

void lower_seeded(Lowering& l) {
  const DType dtype = l.result_type().dtype;
  const DType compute = abi::compute_type(dtype);
  l.result(l.pointwise(l.tensor(0).sizes, dtype, [&](BodyBuilder& b, Indices i) {
    const Val factor =
        b.select(is_kept(l, b, i), b.constant(compute, dropout_scale(l.args().real(3))),
                 b.constant(compute, 0.0));
    return b.mul(b.cast(l.element(b, 0, i, compute), compute), factor);
  }));
  if (l.node().results.size() == 1 || !l.is_used(1)) return;
  l.result(1, l.pointwise(l.tensor(0).sizes, DType::boolean,
                          [&](BodyBuilder& b, Indices i) { return is_kept(l, b, i); }));
}

void reference_seeded(Evaluation& e) {
  const RefTensor& x = e.tensor(0);
  const double p = e.real(3);
  for (std::size_t i = 0; i < x.count(); ++i) {
    const bool kept = seeded::reference_word(e, 1, i) >= dropped_below(p);
    e.result().set(i, x.real(i) * (kept ? dropout_scale(p) : 0));
    if (e.result_count() > 1) e.result(1).set(i, std::int64_t{kept});
  }
}

std::vector<Sample> samples_seeded() {
  return {{"quarter",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {s.free_tensor({3, 5}), s.tensor(DType::i64, {}, -9, 9), s.constant(2), 0.25};
           },
           float_dtypes()}};
}

constexpr OpDef kDropout[] = {
    {.name = "dropout",
     .schema = "(input: tensor, p: real, train: boolean) -> tensor",
     .doc = "The input itself; in training eager's dropout.",
     .infer = infer_dropout,
     .lower = lower_dropout,
     .reference = reference_dropout,
     .aten = "aten::dropout aten::feature_dropout",
     .samples = samples_dropout},
    {.name = "native_dropout",
     .schema = "(input: tensor, p: real, train: optional_boolean) -> tensor, tensor",
     .doc = "The input itself and a mask of ones; in training eager's dropout.",
     .infer = infer_native_dropout,
     .lower = lower_dropout,
     .reference = reference_dropout,
     .aten = "aten::native_dropout",
     .samples = samples_dropout},
    {.name = "seeded_dropout",
     .schema = "(input: tensor, seed: tensor, number: integer, p: real) -> tensor",
     .doc = "Dropout by the mask of a seed; its own gradient.",
     .infer = infer_seeded,
     .lower = lower_seeded,
     .reference = reference_seeded,
     .aten = "inkle::dropout",
     .samples = samples_seeded},
    {.name = "seeded_native_dropout",
     .schema = "(input: tensor, seed: tensor, number: integer, p: real) -> tensor, tensor",
     .doc = "Dropout by the mask of a seed, and that mask.",
     .infer = infer_seeded_mask,
     .lower = lower_seeded,
     .reference = reference_seeded,
     .aten = "inkle::native_dropout",
     .samples = samples_seeded},
};

}  // namespace

std::span<const OpDef> dropout_ops() { return kDropout; }

}  // namespace inkle::ops
