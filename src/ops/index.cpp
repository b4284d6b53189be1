// Reads by index tensors: embedding, gather, index_select and advanced indexing. An index is an
// indirect symbol inside the load; its bounds are checked as ATen checks them.
#include "base/error.h"
#include "ops/advanced_index.h"
#include "ops/axes.h"
#include "ops/infer.h"
#include "ops/samples.h"
#include "ops/table.h"

namespace inkle::ops {
namespace {

using graph::Argument;
using graph::OpDef;
using graph::Sample;
using graph::ValueId;
using infer::Types;

const Type& index_tensor(Inference& in, std::size_t arg) {
  const Type& type = infer::computable(in, arg);
  if (type.dtype != DType::i64 && type.dtype != DType::i32) in.fail("an index must be i32 or i64");
  return type;
}
// The value of an index tensor's element as an index below `extent`; no negative ones.
Expr index_at(const Lowering& l, BodyBuilder& b, const Tensor& index, Indices i, Expr extent) {
  return b.indirect(element_as(l, b, index, i, DType::i64), extent);
}
std::int64_t reference_index(std::int64_t value, std::int64_t extent, bool wraps) {
  if (wraps && value < 0) value += extent;
  if (value < 0 || value >= extent) user_error("index {} is out of range 0..{}", value, extent);
  return value;
}

// --- Embedding: (weight, indices, padding_idx, scale_grad_by_freq, sparse)

Types infer_embedding(Inference& in) {
  const Type& weight = infer::computable(in, 0);
  const Type& indices = index_tensor(in, 1);
  if (weight.rank() != 2) in.fail("the weight must be a matrix");
  Sizes sizes = indices.sizes;
  sizes.push_back(weight.sizes[1]);
  return {infer::make(weight, weight.dtype, std::move(sizes))};
}
void lower_embedding(Lowering& l) {
  const Tensor &weight = l.tensor(0), &indices = l.tensor(1);
  l.result(l.pointwise(l.result_type().sizes, weight.dtype, [&](BodyBuilder& b, Indices i) {
    const Expr row = index_at(l, b, indices, i.first(i.size() - 1), weight.sizes[0]);
    return l.element(b, weight, std::vector<Expr>{row, i.back()});
  }));
}
void reference_embedding(Evaluation& e) {
  const RefTensor &weight = e.tensor(0), &indices = e.tensor(1);
  const std::int64_t width = weight.sizes[1];
  for_each_index(e.result().sizes, [&](std::span<const std::int64_t> i, std::size_t p) {
    const std::int64_t row = reference_index(indices.integer(p / static_cast<std::size_t>(width)),
                                             weight.sizes[0], false);
    e.result().copy_element(p, weight, static_cast<std::size_t>(row * width + i.back()));
  });
}

// --- Gather: (self, dim, index, sparse_grad)

Types infer_gather(Inference& in) {
  const Type& x = infer::computable(in, 0);
  const Type& index = index_tensor(in, 2);
  (void)in.dim(in.constant_integer(1), x.rank());
  if (index.rank() != x.rank()) in.fail("the index must have the rank of the input");
  return {infer::make(x, x.dtype, index.sizes)};
}
void lower_gather(Lowering& l) {
  const Tensor &x = l.tensor(0), &index = l.tensor(2);
  const std::size_t dim = l.args().dim(l.args().constant_integer(1), x.rank());
  l.result(l.pointwise(index.sizes, x.dtype, [&](BodyBuilder& b, Indices i) {
    std::vector<Expr> at(i.begin(), i.end());
    if (x.rank() > 0) at[dim] = index_at(l, b, index, i, x.sizes[dim]);
    return l.element(b, x, at);
  }));
}
void reference_gather(Evaluation& e) {
  const RefTensor &x = e.tensor(0), &index = e.tensor(2);
  const std::size_t dim = e.dim(e.integer(1), x.rank());
  for_each_index(index.sizes, [&](std::span<const std::int64_t> i, std::size_t p) {
    std::vector<std::int64_t> at(i.begin(), i.end());
    if (x.rank() > 0) at[dim] = reference_index(index.integer(p), x.sizes[dim], false);
    e.result().copy_element(p, x, x.at(at));
  });
}

// --- index_select: (self, dim, index)

Types infer_index_select(Inference& in) {
  const Type& x = infer::computable(in, 0);
  const Type& index = index_tensor(in, 2);
  const std::size_t dim = in.dim(in.constant_integer(1), x.rank());
  if (index.rank() > 1) in.fail("the index must be a vector");
  Sizes sizes = x.sizes;
  if (x.rank() > 0) sizes[dim] = index.rank() == 1 ? index.sizes[0] : in.context().constant(1);
  return {infer::make(x, x.dtype, std::move(sizes))};
}
void lower_index_select(Lowering& l) {
  const Tensor &x = l.tensor(0), &index = l.tensor(2);
  const std::size_t dim = l.args().dim(l.args().constant_integer(1), x.rank());
  l.result(l.pointwise(l.result_type().sizes, x.dtype, [&](BodyBuilder& b, Indices i) {
    std::vector<Expr> at(i.begin(), i.end());
    if (x.rank() > 0) {
      at[dim] =
          index_at(l, b, index, index.rank() == 0 ? Indices{} : i.subspan(dim, 1), x.sizes[dim]);
    }
    return l.element(b, x, at);
  }));
}
void reference_index_select(Evaluation& e) {
  const RefTensor &x = e.tensor(0), &index = e.tensor(2);
  const std::size_t dim = e.dim(e.integer(1), x.rank());
  for_each_index(e.result().sizes, [&](std::span<const std::int64_t> i, std::size_t p) {
    std::vector<std::int64_t> at(i.begin(), i.end());
    if (x.rank() > 0) {
      at[dim] =
          reference_index(index.integer(static_cast<std::size_t>(i[dim])), x.sizes[dim], false);
    }
    e.result().copy_element(p, x, x.at(at));
  });
}

// --- Advanced indexing: (self, indices)

Types infer_index(Inference& in) {
  const Type& x = infer::computable(in, 0);
  return {infer::make(x, x.dtype, advanced_index_of(in, 1).result_sizes(x.sizes))};
}
void lower_index(Lowering& l) {
  const Tensor& x = l.tensor(0);
  const AdvancedIndex plan = advanced_index_of(l.args(), 1);
  const std::vector<const Tensor*> indices = l.tensors(1);
  l.result(l.pointwise(l.result_type().sizes, x.dtype, [&](BodyBuilder& b, Indices i) {
    return l.element(b, x, plan.source_indices(l, b, indices, x.sizes, i));
  }));
}
void reference_index_tensor(Evaluation& e) {
  const RefTensor& x = e.tensor(0);
  const std::vector<const RefTensor*> indices = e.tensors(1);
  for_each_index(e.result().sizes, [&](std::span<const std::int64_t> i, std::size_t p) {
    e.result().copy_element(p, x, x.at(reference_source_indices(indices, x, i)));
  });
}

std::vector<Sample> samples_embedding() {
  return {{"rows",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {s.tensor({s.constant(11), s.size(7)}),
                     s.tensor(DType::i64, {s.size(3), s.size(5)}, 0, 10)};
           },
           number_dtypes()}};
}
std::vector<Sample> samples_gather() {
  return {{"middle",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {s.tensor({s.size(3), s.constant(9), s.size(5)}), s.constant(1),
                     s.tensor(DType::i64, {s.size(3), s.size(4), s.size(5)}, 0, 8)};
           },
           number_dtypes()}};
}
std::vector<Sample> samples_index_select() {
  return {{"middle",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {s.tensor({s.size(3), s.constant(9), s.size(5)}), s.constant(1),
                     s.tensor(DType::i64, {s.size(4)}, 0, 8)};
           },
           number_dtypes()}};
}
std::vector<Sample> samples_index() {
  return {{"first",
           [](SampleBuilder& s) -> std::vector<Argument> {
             const auto index = s.tensor(DType::i64, {s.size(4), s.size(2)}, -9, 8);
             return {s.tensor({s.constant(9), s.size(5)}),
                     std::vector<ValueId>{std::get<ValueId>(index)}};
           },
           number_dtypes()},
          {"split",
           [](SampleBuilder& s) -> std::vector<Argument> {
             const auto row = s.tensor(DType::i64, {s.size(4), s.constant(1)}, 0, 8);
             const auto column = s.tensor(DType::i64, {s.size(3)}, 0, 6);
             return {s.tensor({s.constant(9), s.size(5), s.constant(7)}),
                     std::vector<ValueId>{std::get<ValueId>(row), ValueId{},
                                          std::get<ValueId>(column)}};
           },
           number_dtypes()}};
}

constexpr OpDef kIndex[] = {
    {.name = "embedding",
     .schema = "(weight: tensor, indices: tensor, padding_idx: integer = -1, "
               "scale_grad_by_freq: boolean = false, sparse: boolean = false) -> tensor",
     .doc = "Rows of the weight; indices are not wrapped.",
     .infer = infer_embedding,
     .lower = lower_embedding,
     .reference = reference_embedding,
     .aten = "aten::embedding",
     .samples = samples_embedding},
    {.name = "gather",
     .schema = "(self: tensor, dim: integer, index: tensor, sparse_grad: boolean = false) "
               "-> tensor",
     .doc = "Elements whose position along dim is the index's element.",
     .infer = infer_gather,
     .lower = lower_gather,
     .reference = reference_gather,
     .aten = "aten::gather",
     .samples = samples_gather},
    {.name = "index",
     .schema = "(self: tensor, indices: optional_tensor_list) -> tensor",
     .doc = "Advanced indexing by integer tensors; negative indices count from the end.",
     .infer = infer_index,
     .lower = lower_index,
     .reference = reference_index_tensor,
     .aten = "aten::index.Tensor aten::_unsafe_index.Tensor",
     .samples = samples_index},
    {.name = "index_select",
     .schema = "(self: tensor, dim: integer, index: tensor) -> tensor",
     .doc = "The slices along dim that a vector names.",
     .infer = infer_index_select,
     .lower = lower_index_select,
     .reference = reference_index_select,
     .aten = "aten::index_select",
     .samples = samples_index_select},
};

}  // namespace

std::span<const OpDef> index_ops() { return kIndex; }

}  // namespace inkle::ops
