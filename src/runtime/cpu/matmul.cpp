// Matrix products: batch dimensions are folded into rows or merged until oneDNN's two or three
// dimensions are left, the rest become loops.
#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "runtime/common/dimensions.h"
#include "runtime/cpu/library_shapes.h"

namespace inkle::runtime::cpu {
namespace {

// Packed weights against weights read in place as [n, k], f32, 2 threads of a Zen 5 with AVX-512,
// GFLOP/s for k, n of MiniLM, BERT and a small llama (384x384 to 3072x768, 512x8192):
//   rows            1        8       32       128       512      1024
//   in place       41      240      385       470       480       480
//   inner product  90      265  80..250  200..400  370..470  370..490
//   packed        105      440      480       500       505       500
// Below this many rows packing wins at least 5%.
constexpr std::int64_t kPackBelowRows = 256;
// In place, oneDNN's inner product (its own GEMM, no copy of the weights) wins up to here.
constexpr std::int64_t kInnerProductUpToRows = 8;

using common::Dimension;

// Operands of a dimension, counted as in Role (bias never steps).
constexpr std::size_t kSource = 0, kWeights = 1, kDestination = 2, kFirstPostOp = 4;

std::vector<Dimension> batch_dimensions(const TensorDescription& a, const TensorDescription& b,
                                        const TensorDescription& c,
                                        const std::vector<PostOpDescription>& post_ops) {
  std::vector<Dimension> dims;
  for (std::size_t d = 0; d + 2 < c.sizes.size(); ++d) {
    if (c.sizes[d] == 1) continue;
    const auto step = [d](const TensorDescription& t) {
      return t.sizes[d] == 1 ? 0 : t.strides[d];
    };
    Dimension dim{.size = c.sizes[d], .strides = {step(a), step(b), step(c), 0}};
    for (const PostOpDescription& p : post_ops) {
      if (!p.operand.sizes.empty()) dim.strides.push_back(step(p.operand));
    }
    dims.push_back(std::move(dim));
  }
  return dims;
}

Dimension matrix_dimension(std::size_t from_end, const TensorDescription& a,
                           const TensorDescription& b, const TensorDescription& c,
                           const std::vector<PostOpDescription>& post_ops) {
  const std::size_t d = c.sizes.size() - from_end;
  Dimension dim{.size = c.sizes[d],
                .strides = {from_end == 2 ? a.strides[d] : 0, from_end == 1 ? b.strides[d] : 0,
                            c.strides[d], 0}};
  for (const PostOpDescription& p : post_ops) {
    if (p.operand.sizes.empty()) continue;
    dim.strides.push_back(p.operand.sizes[d] == 1 ? 0 : p.operand.strides[d]);
  }
  return dim;
}

void fold_batches(std::vector<Dimension>& batches, Dimension& rows) {
  // All rows read the same weights, so only batches that share them can fold into rows.
  common::fold_shared(batches, rows, kWeights);
  // The longest batch dimension becomes the primitive's batch.
  common::merge_batches(batches);
}

// A matrix of oneDNN: strides of dimensions of size 1 do not matter, and are made what a dense
// matrix has, which is what oneDNN looks for.
TensorDescription matrix(abi::DType dtype, const Dimension* batch, std::size_t operand,
                         std::int64_t rows, std::int64_t row_stride, std::int64_t columns,
                         std::int64_t column_stride) {
  if (columns == 1) column_stride = 1;
  if (rows == 1) row_stride = column_stride == 1 ? columns : 1;
  TensorDescription t{
      .dtype = dtype, .sizes = {rows, columns}, .strides = {row_stride, column_stride}};
  if (batch != nullptr) {
    const std::int64_t step = batch->strides[operand];
    t.sizes.insert(t.sizes.begin(), step == 0 ? 1 : batch->size);
    t.strides.insert(t.strides.begin(),
                     step == 0 ? std::max(rows * row_stride, columns * column_stride) : step);
  }
  return t;
}

struct Product {
  const abi::MatmulCall* call;
  TensorDescription a, b, c;
  Dimension rows, columns;
  std::int64_t depth = 0, a_depth_stride = 0, b_depth_stride = 0;
  std::vector<Dimension> batches;
  std::vector<PostOpDescription> post_ops;
};

PrimitiveDescription describe(const Product& p, const Dimension* batch,
                              const std::optional<TensorDescription>& bias) {
  PrimitiveDescription d{.kind = PrimitiveDescription::Kind::matmul};
  d.source = matrix(p.a.dtype, batch, kSource, p.rows.size, p.rows.strides[kSource], p.depth,
                    p.a_depth_stride);
  d.weights = matrix(p.b.dtype, batch, kWeights, p.depth, p.b_depth_stride, p.columns.size,
                     p.columns.strides[kWeights]);
  d.destination = matrix(p.c.dtype, batch, kDestination, p.rows.size, p.rows.strides[kDestination],
                         p.columns.size, p.columns.strides[kDestination]);
  // Rank agreement: oneDNN broadcasts size 1 of source and weights against the destination.
  d.bias = bias;
  std::size_t operand = kFirstPostOp;
  for (const PostOpDescription& op : p.post_ops) {
    PostOpDescription copy = op;
    if (!op.operand.sizes.empty()) {
      const auto at = operand++;
      const auto size = [&](const Dimension& dim) { return dim.strides[at] == 0 ? 1 : dim.size; };
      copy.operand.sizes = {size(p.rows), size(p.columns)};
      copy.operand.strides = {p.rows.strides[at], p.columns.strides[at]};
      if (batch != nullptr) {
        copy.operand.sizes.insert(copy.operand.sizes.begin(), size(*batch));
        copy.operand.strides.insert(copy.operand.strides.begin(), batch->strides[at]);
      }
    }
    d.post_ops.push_back(std::move(copy));
  }
  return d;
}

CompiledCall::Loop as_loop(const Dimension& dim, const Product& p) {
  CompiledCall::Loop loop{.extent = dim.size, .steps = {}};
  std::vector<abi::DType> dtypes = {p.a.dtype, p.b.dtype, p.c.dtype, abi::DType::f32};
  for (const PostOpDescription& op : p.post_ops) {
    if (!op.operand.sizes.empty()) dtypes.push_back(op.operand.dtype);
  }
  for (std::size_t i = 0; i < dim.strides.size(); ++i) {
    loop.steps.push_back(dim.strides[i] * abi::size_of(dtypes[i]));
  }
  return loop;
}

// Weights [n, k] read along k, no batch: the form of oneDNN's inner product.
bool is_inner_product(const PrimitiveDescription& d, std::int64_t depth) {
  return d.source.sizes.size() == 2 && d.source.strides[1] == 1 && d.destination.strides[1] == 1 &&
         d.source.strides[0] == depth && d.weights.strides[0] == 1 &&
         d.weights.strides[1] == depth && d.destination.strides[0] == d.destination.sizes[1];
}

void choose_form(PrimitiveDescription& d, const Product& p, bool stable_weights) {
  if (p.batches.empty() && stable_weights && p.rows.size < kPackBelowRows) {
    d.pack_weights = true;
  } else if (p.rows.size <= kInnerProductUpToRows && p.a.dtype == abi::DType::f32 &&
             is_inner_product(d, p.depth)) {
    d.kind = PrimitiveDescription::Kind::inner_product;
    std::swap(d.weights.sizes[0], d.weights.sizes[1]);
    std::swap(d.weights.strides[0], d.weights.strides[1]);
  }
}

Product resolve_product(const abi::MatmulCall& call, std::span<const std::int64_t> slots) {
  Product p{.call = &call,
            .a = resolve(call.a, slots),
            .b = resolve(call.b, slots),
            .c = resolve(call.c, slots)};
  const std::size_t rank = p.c.sizes.size();
  INKLE_CHECK(rank >= 2 && p.a.sizes.size() == rank && p.b.sizes.size() == rank,
              "matmul operands of ranks {}, {}, {}", p.a.sizes.size(), p.b.sizes.size(), rank);
  p.post_ops = resolve(call.post_ops, p.c, slots);
  p.rows = matrix_dimension(2, p.a, p.b, p.c, p.post_ops);
  p.columns = matrix_dimension(1, p.a, p.b, p.c, p.post_ops);
  p.depth = p.a.sizes[rank - 1];
  p.a_depth_stride = p.a.strides[rank - 1];
  p.b_depth_stride = p.b.strides[rank - 2];
  INKLE_CHECK(p.a.sizes[rank - 2] == p.rows.size && p.b.sizes[rank - 1] == p.columns.size &&
                  p.b.sizes[rank - 2] == p.depth,
              "matmul of [{}, {}] and [{}, {}] into [{}, {}]", p.a.sizes[rank - 2], p.depth,
              p.b.sizes[rank - 2], p.b.sizes[rank - 1], p.rows.size, p.columns.size);
  p.batches = batch_dimensions(p.a, p.b, p.c, p.post_ops);
  return p;
}

// The primitive over rows, columns and at most one batch; oneDNN may have only its slow reference
// for some batch layouts, then batches become a loop.
void make_primitive(Product& p, CompiledCall& result, bool stable_weights) {
  const std::vector<PostOpDescription> all = p.post_ops;
  for (const bool with_batch : {true, false}) {
    const Dimension* batch = with_batch && !p.batches.empty() ? &p.batches.back() : nullptr;
    // oneDNN repeats one operand over a batch, not both.
    const bool repeats_both = batch != nullptr && batch->size != 1 &&
                              batch->strides[kSource] == 0 && batch->strides[kWeights] == 0;
    if (repeats_both) continue;
    PrimitiveDescription d = describe(p, batch, result.bias);
    CompiledCall split{.destination = d.destination, .channel = d.destination.sizes.size() - 1};
    std::vector<PostOpDescription> fused;
    split_post_ops(d.post_ops, split, fused);
    d.post_ops = fused;
    choose_form(d, p, stable_weights);
    result.rest.assign(all.begin() + static_cast<std::ptrdiff_t>(fused.size()), all.end());
    result.rest_operand = split.rest_operand;
    result.loops.clear();
    for (const Dimension& dim : p.batches) {
      if (&dim != batch) result.loops.push_back(as_loop(dim, p));
    }
    make_primitives(std::move(d), result);
    if (batch == nullptr || !result.primitive->is_reference()) return;
  }
}

}  // namespace

CompiledCall compile(const abi::MatmulCall& call, std::span<const std::int64_t> slots,
                     bool stable_weights) {
  Product p = resolve_product(call, slots);
  CompiledCall result{.destination = p.c, .channel = p.c.sizes.size() - 1};
  result.weight_span = span_bytes(p.b);
  result.source_span = span_bytes(p.a);
  result.terms = p.depth;
  if (call.has_bias) result.bias = resolve_bias(call.bias, slots);
  if (has_no_elements(p.c)) {
    result.is_empty = true;
    return result;
  }
  if (p.depth == 0) {
    result.is_fill = true;
    result.rest = p.post_ops;
    result.rest_operand = kFirstPostOp;
    return result;
  }
  fold_batches(p.batches, p.rows);
  make_primitive(p, result, stable_weights);
  return result;
}

bool can_run(const abi::MatmulCall& call, bool with_bf16) {
  return dtype_objection(call.a, call.b, call.c, call.has_bias ? &call.bias : nullptr,
                         call.post_ops, with_bf16)
      .empty();
}

}  // namespace inkle::runtime::cpu
