// Index bookkeeping that reductions, norms and pooling share: which dimensions are reduced, and
// how indices of a result and of a reduced space make indices of the operand.
#pragma once

#include <cstdint>
#include <vector>

#include "abi/target.h"
#include "ops/interpreter.h"
#include "ops/lowering.h"

namespace inkle::ops {

using graph::Inference;
using graph::Type;

// The dimensions of one tensor, each kept or reduced.
struct Axes {
  std::vector<bool> is_reduced;  // by dimension of the operand

  // All dimensions of a tensor of `rank` reduced.
  [[nodiscard]] static Axes all(std::size_t rank) { return {std::vector<bool>(rank, true)}; }
  // The dimensions from `first` on reduced.
  [[nodiscard]] static Axes from(std::size_t first, std::size_t rank);
  [[nodiscard]] static Axes only(std::size_t dim, std::size_t rank);

  [[nodiscard]] Sizes kept(const Sizes& sizes) const;
  // Never empty: a single 1 when no dimension is reduced.
  [[nodiscard]] Sizes reduced(sym::Context& context, const Sizes& sizes) const;
  // Sizes of the op's result: reduced dimensions have size 1, or are absent.
  [[nodiscard]] Sizes result(sym::Context& context, const Sizes& sizes, bool keepdim) const;
  // Indices of the operand from indices over kept() and over reduced().
  [[nodiscard]] std::vector<Expr> join(Indices outer, Indices inner) const;
  // Indices over kept() from indices of the operand.
  [[nodiscard]] std::vector<Expr> kept_indices(Indices full) const;
};

// The axes that argument `arg` (an integer or a list of integers; None or empty: all) names for a
// tensor of `rank`. A dimension named twice is a UserError.
[[nodiscard]] Axes axes_of(const Inference& in, std::size_t arg, std::size_t rank);

[[nodiscard]] Axes axes_of(const Evaluation& e, std::size_t arg, std::size_t rank);

// For each element over axes.kept(), in order, the positions of the elements of `t` that reduce
// into it, in row-major order.
[[nodiscard]] std::vector<std::vector<std::size_t>> reduction_groups(const RefTensor& t,
                                                                     const Axes& axes);

// A tensor over axes.kept() seen with size-1 dimensions where `axes` reduces; the tensor itself
// without `keepdim`.
[[nodiscard]] Tensor keep_dims(const Lowering& l, const Tensor& t, const Axes& axes, bool keepdim);

// The type of tensor argument `i`: Unsupported unless computable, UserError unless a float.
[[nodiscard]] const Type& float_tensor(Inference& in, std::size_t i);

// The dtype in which elements of `x` are added up: on the CPU f64 for those of `wide`, as in ATen.
[[nodiscard]] DType accumulator_of(const Type& x, abi::SetOf<DType> wide);
// Element counts as a value of a body.
[[nodiscard]] Val count_value(BodyBuilder& b, const Sizes& sizes, DType dtype);
// The element of `t` cast to `dtype`.
[[nodiscard]] Val element_as(const Lowering& l, BodyBuilder& b, const Tensor& t, Indices i,
                             DType dtype);

// A node's integer list with one entry for each of `rank` dimensions: a list of one entry is
// repeated, an empty list gives `otherwise`.
[[nodiscard]] std::vector<std::int64_t> spatial_list(const Inference& in, std::size_t arg,
                                                     std::size_t rank, std::int64_t otherwise);

// Indices over `sizes` of the element at row-major position `linear`.
[[nodiscard]] std::vector<Expr> unflatten(const Sizes& sizes, Expr linear);
// The row-major position of the element at `indices` over `sizes`.
[[nodiscard]] Expr flatten(sym::Context& context, const Sizes& sizes, Indices indices);

// Dtypes that samples of numeric and of float rows are run with.
[[nodiscard]] std::vector<DType> number_dtypes();
[[nodiscard]] std::vector<DType> float_dtypes();

// What ATen's convolutions take from argument `first` on: stride, padding, dilation, transposed,
// output_padding, groups.
[[nodiscard]] loop::Convolution convolution_parameters(const Inference& in, std::size_t first,
                                                       std::size_t spatial);

// The tensor that argument `arg` of a node names.
[[nodiscard]] inline graph::ValueId operand_of(const graph::Node& node, std::size_t arg) {
  return std::get<graph::ValueId>(node.args[arg]);
}

// ATen's enumeration of a loss's reduction; 2 is the sum.
constexpr std::int64_t kReduceNone = 0, kReduceMean = 1;

}  // namespace inkle::ops
