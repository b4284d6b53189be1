// Gradients of reads by index: sums scattered to where the reads came from.
#include "base/error.h"
#include "ops/axes.h"
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

// --- embedding_dense_backward: (grad, indices, num_weights, padding_idx, scale_grad_by_freq)

Types infer_embedding(Inference& in) {
  const Type &g = float_tensor(in, 0), &indices = infer::computable(in, 1);
  if (indices.dtype != DType::i64 && indices.dtype != DType::i32) in.fail("indices are i32 or i64");
  if (g.rank() != indices.rank() + 1) in.fail("the gradient does not fit the indices");
  if (in.boolean(4)) unsupported("embedding_dense_backward: scaled by frequency");
  return {infer::make(g, g.dtype, {in.integer(2), g.sizes.back()})};
}
// Rows of the padding add 0. Sums are in f32 or f64.
std::vector<ValueId> decompose_embedding(Builder& b, const Node& node) {
  const Inference in(b.graph(), *node.op, node.args);
  ValueId grad = std::get<ValueId>(node.args[0]);
  ValueId indices = std::get<ValueId>(node.args[1]);
  const Type type = b.type(grad);
  const DType compute = abi::compute_type(type.dtype);
  if (compute != type.dtype) grad = b.node("_to_copy", {grad, compute});
  if (const auto padding = in.integer(3).constant(); !padding || *padding >= 0) {
    const ValueId is_padding = b.node("eq", {indices, node.args[3]});
    const ValueId column = b.node("unsqueeze", {is_padding, b.integer(-1)});
    grad = b.node("where", {column, 0.0, grad});
  }
  const ValueId zeros = b.full({in.integer(2), type.sizes.back()}, 0, compute, type.device);
  const ValueId sum = b.node("index_put", {zeros, std::vector<ValueId>{indices}, grad, true});
  return {compute != type.dtype ? b.node("_to_copy", {sum, type.dtype}) : sum};
}
void reference_embedding(Evaluation& e) {
  const RefTensor &g = e.tensor(0), &indices = e.tensor(1);
  RefTensor& y = e.result();
  const auto width = static_cast<std::size_t>(y.sizes[1]);
  for (std::size_t i = 0; i < indices.count(); ++i) {
    const std::int64_t row = indices.integer(i);
    if (row == e.integer(3)) continue;
    if (row < 0 || row >= y.sizes[0]) user_error("index {} is out of range", row);
    for (std::size_t c = 0; c < width; ++c) {
      const std::size_t at = static_cast<std::size_t>(row) * width + c;
      y.set(at, y.real(at) + g.real(i * width + c));
    }
  }
}
template <int padding>
std::vector<Argument> sample_embedding(SampleBuilder& s) {
  return {s.free_tensor({3, 7, 5}), s.tensor(DType::i64, {s.size(3), s.size(7)}, 0, 8),
          s.constant(9), s.constant(padding), false};
}
std::vector<Sample> samples_embedding() {
  return {{"plain", sample_embedding<-1>, {DType::f32, DType::f64}},
          {"padding", sample_embedding<2>, {DType::f32, DType::bf16}}};
}

constexpr OpDef kIndexBackward[] = {
    {.name = "embedding_dense_backward",
     .schema = "(grad_output: tensor, indices: tensor, num_weights: integer, padding_idx: integer, "
               "scale_grad_by_freq: boolean) -> tensor",
     .doc = "Gradient of embedding: sums of the rows of the gradient by index.",
     .traits = Trait::reduction,
     .infer = infer_embedding,
     .decompose = decompose_embedding,
     .reference = reference_embedding,
     .aten = "aten::embedding_dense_backward",
     .samples = samples_embedding},
};

}  // namespace

std::span<const OpDef> index_backward_ops() { return kIndexBackward; }

}  // namespace inkle::ops
