#include "runtime/cuda/matmul.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "base/error.h"
#include "runtime/common/dimensions.h"

namespace inkle::runtime::cuda {
namespace {

constexpr std::size_t kA = 0, kB = 1, kC = 2, kD = 3;

using common::Dimension;

class Planner {
 public:
  Planner(const abi::MatmulCall& call, std::span<const std::int64_t> slots)
      : call_(call), slots_(slots), residual_(residual_of(call)) {}

  GemmPlan run() {
    const std::size_t rank = call_.c.sizes.size();
    rows_ = dimension(rank - 2);
    rows_.strides[kB] = 0;
    columns_ = dimension(rank - 1);
    columns_.strides[kA] = 0;
    depth_ = slots_[call_.a.sizes[rank - 1]];
    a_depth_ = slots_[call_.a.strides[rank - 1]];
    b_depth_ = slots_[call_.b.strides[rank - 2]];
    for (std::size_t d = 0; d + 2 < rank; ++d) {
      Dimension batch = dimension(d);
      plan_.is_empty |= batch.size == 0;
      if (batch.size != 1) batches_.push_back(batch);
    }
    plan_.is_empty |= rows_.size == 0 || columns_.size == 0;
    plan_.is_zero = depth_ == 0;
    if (plan_.is_empty) return plan_;
    if (plan_.is_zero) check_zero();
    fold_batches();
    offsets();
    shape();
    return plan_;
  }

 private:
  [[nodiscard]] std::int64_t value(abi::Slot s) const { return slots_[s]; }

  [[nodiscard]] std::int64_t step(const abi::Operand& o, std::size_t d) const {
    return value(o.sizes[d]) == 1 ? 0 : value(o.strides[d]);
  }
  [[nodiscard]] Dimension dimension(std::size_t d) const {
    Dimension result{.size = value(call_.c.sizes[d])};
    result.strides = {step(call_.a, d), step(call_.b, d),
                      residual_ == nullptr ? 0 : step(*residual_, d), step(call_.c, d)};
    if (residual_ == nullptr) result.strides[kC] = result.strides[kD];
    return result;
  }

  void check_zero() const {
    if (call_.has_bias || !call_.post_ops.empty()) {
      unsupported("a matrix product with K = 0 and a bias or post-ops");
    }
  }

  void fold_batches() {
    // All rows read the same second matrix, so only batches that share it can fold into rows.
    common::fold_shared(batches_, rows_, kB);
    // The longest batch dimension becomes the library's batch.
    common::merge_batches(batches_);
  }

  [[nodiscard]] std::int64_t bytes(abi::Slot elements, abi::DType dtype) const {
    return value(elements) * abi::size_of(dtype);
  }

  void offsets() {
    plan_.a = bytes(call_.a.offset, call_.a.dtype);
    plan_.b = bytes(call_.b.offset, call_.b.dtype);
    plan_.d = bytes(call_.c.offset, call_.c.dtype);
    if (residual_ != nullptr) plan_.c = bytes(residual_->offset, residual_->dtype);
    if (call_.has_bias) plan_.bias = bytes(call_.bias.offset, call_.bias.dtype);
  }

  // One stride of a matrix must be 1 and the other at least the extent. Strides along extent 1, and
  // those of an empty matrix, are free to choose. Returns (stride along the first dimension, stride
  // along the second).
  [[nodiscard]] static std::array<std::int64_t, 2> matrix(std::int64_t first,
                                                          std::int64_t first_step,
                                                          std::int64_t second,
                                                          std::int64_t second_step) {
    if (first == 0 || second == 0) return {std::max<std::int64_t>(second, 1), 1};
    if (second == 1 && first_step != 1) second_step = 1;
    if (first == 1 && second_step != 1) first_step = 1;
    if (second_step == 1) {
      if (first == 1) first_step = second;
      if (first_step >= second) return {first_step, 1};
    }
    if (first_step == 1) {
      if (second == 1) second_step = first;
      if (second_step >= first) return {1, second_step};
    }
    unsupported("a matrix product of an operand with strides {} and {}: one must be 1", first_step,
                second_step);
  }

  void shape() {
    std::array<std::int64_t, 2> d =
        matrix(rows_.size, rows_.strides[kD], columns_.size, columns_.strides[kD]);
    plan_.swapped = d[1] != 1;
    if (plan_.swapped) {
      if (call_.has_bias) unsupported("a matrix product with a bias along its rows");
      std::swap(rows_, columns_);
      for (Dimension* dim : {&rows_, &columns_}) std::swap(dim->strides[kA], dim->strides[kB]);
      for (Dimension& dim : batches_) std::swap(dim.strides[kA], dim.strides[kB]);
      std::swap(a_depth_, b_depth_);
      std::swap(d[0], d[1]);
      std::swap(plan_.a, plan_.b);
    }
    GemmShape& s = plan_.shape;
    s.in = call_.a.dtype;
    s.out = call_.c.dtype;
    s.m = rows_.size;
    s.n = columns_.size;
    s.k = depth_;
    const auto a = matrix(s.m, rows_.strides[kA], s.k, a_depth_);
    s.a_row = a[0];
    s.a_depth = a[1];
    const auto b = matrix(s.k, b_depth_, s.n, columns_.strides[kB]);
    s.b_depth = b[0];
    s.b_column = b[1];
    s.d_row = d[0];
    s.has_bias = call_.has_bias;
    s.has_residual = residual_ != nullptr;
    if (s.has_residual) {
      const auto c = matrix(s.m, rows_.strides[kC], s.n, columns_.strides[kC]);
      if (c[1] != 1) unsupported("a residual with another layout than the result");
      s.c_row = c[0];
    }
    for (const abi::PostOp& p : call_.post_ops) {
      if (p.kind == abi::PostOpKind::relu) s.activation = GemmShape::Activation::relu;
      if (p.kind == abi::PostOpKind::gelu_tanh) s.activation = GemmShape::Activation::gelu_tanh;
    }
    batch();
    s.alignment = alignment();
  }

  void batch() {
    GemmShape& s = plan_.shape;
    const std::int64_t in = abi::size_of(s.in);
    const std::int64_t out = abi::size_of(s.out);
    for (std::size_t i = 0; i < batches_.size(); ++i) {
      const Dimension& dim = batches_[i];
      if (i + 1 == batches_.size() && dim.strides[kD] != 0) {
        s.batch = dim.size;
        s.a_batch = dim.strides[kA];
        s.b_batch = dim.strides[kB];
        s.c_batch = s.has_residual ? dim.strides[kC] : 0;
        s.d_batch = dim.strides[kD];
      } else {
        plan_.loops.push_back({dim.size, dim.strides[kA] * in, dim.strides[kB] * in,
                               dim.strides[kC] * out, dim.strides[kD] * out});
      }
    }
  }

  // The largest power of two, 256 at most, that all offsets and steps are multiples of.
  [[nodiscard]] std::int32_t alignment() const {
    const GemmShape& s = plan_.shape;
    std::int64_t all = 256 | plan_.a | plan_.b | plan_.c | plan_.d | plan_.bias;
    for (const GemmPlan::Loop& loop : plan_.loops) all |= loop.a | loop.b | loop.c | loop.d;
    all |= (s.a_batch | s.b_batch) * abi::size_of(s.in);
    all |= (s.c_batch | s.d_batch) * abi::size_of(s.out);
    return static_cast<std::int32_t>(all & -all);
  }

  const abi::MatmulCall& call_;
  std::span<const std::int64_t> slots_;
  const abi::Operand* residual_;
  GemmPlan plan_;
  Dimension rows_, columns_;
  std::int64_t depth_ = 0, a_depth_ = 0, b_depth_ = 0;
  std::vector<Dimension> batches_;
};

}  // namespace

const abi::Operand* residual_of(const abi::MatmulCall& call) {
  for (const abi::PostOp& p : call.post_ops) {
    if (p.kind == abi::PostOpKind::add) return &p.operand;
  }
  return nullptr;
}

GemmPlan plan_gemm(const abi::MatmulCall& call, std::span<const std::int64_t> slots) {
  return Planner(call, slots).run();
}

namespace {

// A vocabulary of 50257 and 8192 rows of bf16 take 6.2 ms whole on an H200. Smaller results are not
// worth the copy; larger blocks do not stay in its L2. Blocks lie in the library workspace, so they
// take no extra memory; their GEMMs run without a workspace.
constexpr std::int64_t kLeastPaddedBytes = 8 << 20;
constexpr std::int64_t kPartBytes = Device::kWorkspaceBytes;
constexpr std::int64_t kPartRows = 128;  // a block has a multiple of these, if so many fit

}  // namespace

std::int64_t padded_row_bytes(const GemmPlan& plan) {
  const std::int64_t bytes = plan.shape.n * abi::size_of(plan.shape.out);
  return (bytes + kPaddedRowAlignment - 1) / kPaddedRowAlignment * kPaddedRowAlignment;
}

std::int64_t padded_rows(const GemmPlan& plan) {
  const GemmShape& s = plan.shape;
  const std::int64_t step = s.d_row * abi::size_of(s.out);
  if (plan.is_empty || plan.is_zero || plan.swapped || !plan.loops.empty() || s.batch != 1 ||
      s.has_residual || s.d_row != s.n || !abi::is_reduced_float(s.out) ||
      step % kPaddedRowAlignment == 0 || s.m * step < kLeastPaddedBytes) {
    return 0;
  }
  const std::int64_t fit = kPartBytes / padded_row_bytes(plan);
  return std::min(s.m, fit < kPartRows ? fit : fit / kPartRows * kPartRows);
}

std::string why_not(const abi::MatmulCall& call) {
  if (!can_multiply(call.a.dtype, call.b.dtype, call.c.dtype)) return "types of the operands";
  if (call.has_bias && call.bias.dtype != call.c.dtype) return "type of the bias";
  bool has_residual = false;
  bool has_activation = false;
  for (const abi::PostOp& p : call.post_ops) {
    switch (p.kind) {
      case abi::PostOpKind::add:
        if (has_residual || has_activation) return "order of the post-ops";
        if (p.operand.dtype != call.c.dtype) return "type of the residual";
        has_residual = true;
        break;
      case abi::PostOpKind::relu:
      case abi::PostOpKind::gelu_tanh:
        if (has_activation) return "order of the post-ops";
        has_activation = true;
        break;
      default:
        return std::string(abi::name_of(p.kind));
    }
  }
  return {};
}

}  // namespace inkle::runtime::cuda
