// Entropy of two-class predictions, as arithmetic of other rows.
#include "base/error.h"
#include "ops/axes.h"
#include "ops/composite_reference.h"
#include "ops/infer.h"
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

// (self, target, weight?, ..., reduction last)
Types infer_entropy(Inference& in) {
  const Type& x = infer::computable(in, 0);
  if (!abi::is_float(x.dtype)) in.fail("needs floating point");
  if (!(infer::computable(in, 1).sizes == x.sizes)) in.fail("target must have the size of self");
  const bool each = in.constant_integer(in.size() - 1) == kReduceNone;
  return {infer::make(x, x.dtype, each ? x.sizes : Sizes{})};
}

std::optional<ValueId> optional_value(const Node& node, std::size_t at) {
  const auto* value = std::get_if<ValueId>(&node.args[at]);
  return value == nullptr ? std::nullopt : std::optional(*value);
}

std::vector<ValueId> weighted_and_reduced(Builder& b, const Node& node, ValueId loss) {
  if (const auto weight = optional_value(node, 2)) loss = b.node("mul", {loss, *weight});
  const auto reduction = std::get<sym::Expr>(node.args.back()).constant();
  if (reduction == kReduceNone) return {loss};
  return {b.node(reduction == kReduceMean ? "mean" : "sum", {loss})};
}

// -(target * log(self) + (1 - target) * log(1 - self)), logarithms not below -100: as ATen.
std::vector<ValueId> decompose_entropy(Builder& b, const Node& node) {
  const ValueId x = std::get<ValueId>(node.args[0]);
  const ValueId target = std::get<ValueId>(node.args[1]);
  const auto bounded = [&](ValueId log) { return b.node("clamp_min", {log, -100.0}); };
  const ValueId one = bounded(b.node("log", {x}));
  const ValueId zero = bounded(b.node("log1p", {b.node("neg", {x})}));
  // (target - 1) * max(log(1 - x), -100) - target * max(log(x), -100)
  const ValueId left = b.node("mul", {b.node("sub", {target, 1.0}), zero});
  return weighted_and_reduced(b, node, b.node("sub", {left, b.node("mul", {target, one})}));
}

// (1 - target) * self - log_sigmoid(self) * (1 + (pos_weight - 1) * target)
std::vector<ValueId> decompose_entropy_with_logits(Builder& b, const Node& node) {
  const ValueId x = std::get<ValueId>(node.args[0]);
  const ValueId target = std::get<ValueId>(node.args[1]);
  ValueId log = b.node("log_sigmoid", {x});
  if (const auto positive = optional_value(node, 3)) {
    const ValueId more = b.node("mul", {b.node("sub", {*positive, 1.0}), target});
    log = b.node("mul", {log, b.node("add", {more, 1.0})});
  }
  const ValueId rest = b.node("mul", {b.node("rsub", {target, 1.0}), x});
  return weighted_and_reduced(b, node, b.node("sub", {rest, log}));
}

template <std::int64_t reduction, bool logits>
std::vector<Argument> sample_entropy(SampleBuilder& s) {
  std::vector<Argument> args = {
      logits ? s.free_tensor({5, 7}) : s.tensor({s.constant(5), s.constant(7)}, 0.01, 0.99),
      s.tensor({s.constant(5), s.constant(7)}, 0, 1)};
  args.push_back(s.tensor({s.constant(7)}, 0.5, 2));
  if (logits) args.push_back(s.tensor({s.constant(7)}, 0.5, 2));
  args.push_back(s.constant(reduction));
  return args;
}
template <bool logits>
std::vector<Sample> samples_entropy() {
  return {{"mean", sample_entropy<kReduceMean, logits>, float_dtypes(), true},
          {"sum", sample_entropy<2, logits>, {DType::f32, DType::f64}, true},
          {"none", sample_entropy<kReduceNone, logits>, {DType::f32, DType::f64}, true}};
}

constexpr OpDef kEntropy[] = {
    {.name = "binary_cross_entropy",
     .schema = "(self: tensor, target: tensor, weight: optional_tensor = none, "
               "reduction: integer = 1) -> tensor",
     .doc = "Entropy of probabilities against targets in 0..1.",
     .traits = Trait::reduction,
     .infer = infer_entropy,
     .decompose = decompose_entropy,
     .reference = composite::ref_binary_cross_entropy,
     .aten = "aten::binary_cross_entropy",
     .samples = samples_entropy<false>},
    {.name = "binary_cross_entropy_with_logits",
     .schema = "(self: tensor, target: tensor, weight: optional_tensor = none, "
               "pos_weight: optional_tensor = none, reduction: integer = 1) -> tensor",
     .doc = "binary_cross_entropy of sigmoid, without its overflow.",
     .traits = Trait::reduction,
     .infer = infer_entropy,
     .decompose = decompose_entropy_with_logits,
     .reference = composite::ref_binary_cross_entropy_with_logits,
     .aten = "aten::binary_cross_entropy_with_logits",
     .samples = samples_entropy<true>},
};

}  // namespace

std::span<const OpDef> entropy_loss_ops() { return kEntropy; }

}  // namespace inkle::ops
