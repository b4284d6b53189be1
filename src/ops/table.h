// The one op table: an explicit list of families, no registration.
#pragma once

#include <span>
#include <string>

#include "graph/op_def.h"

namespace inkle::ops {

// Each family is one file beside this one.
[[nodiscard]] std::span<const graph::OpDef> unary_ops();
[[nodiscard]] std::span<const graph::OpDef> numeric_ops();
[[nodiscard]] std::span<const graph::OpDef> binary_ops();
[[nodiscard]] std::span<const graph::OpDef> compare_ops();
[[nodiscard]] std::span<const graph::OpDef> ternary_ops();
[[nodiscard]] std::span<const graph::OpDef> activation_ops();
[[nodiscard]] std::span<const graph::OpDef> activation_backward_ops();
[[nodiscard]] std::span<const graph::OpDef> creation_ops();
[[nodiscard]] std::span<const graph::OpDef> view_ops();
[[nodiscard]] std::span<const graph::OpDef> slice_ops();
[[nodiscard]] std::span<const graph::OpDef> strided_ops();
[[nodiscard]] std::span<const graph::OpDef> shape_ops();
[[nodiscard]] std::span<const graph::OpDef> shape_backward_ops();
[[nodiscard]] std::span<const graph::OpDef> copy_ops();
[[nodiscard]] std::span<const graph::OpDef> random_ops();
// Families that contract, reduce or move data by index.
[[nodiscard]] std::span<const graph::OpDef> adaptive_pooling_ops();
[[nodiscard]] std::span<const graph::OpDef> attention_ops();
[[nodiscard]] std::span<const graph::OpDef> attention_backward_ops();
[[nodiscard]] std::span<const graph::OpDef> attention_training_ops();
[[nodiscard]] std::span<const graph::OpDef> batch_norm_ops();
[[nodiscard]] std::span<const graph::OpDef> composite_ops();
[[nodiscard]] std::span<const graph::OpDef> composite_math_ops();
[[nodiscard]] std::span<const graph::OpDef> composite_float_ops();
[[nodiscard]] std::span<const graph::OpDef> convolution_ops();
[[nodiscard]] std::span<const graph::OpDef> convolution_backward_ops();
[[nodiscard]] std::span<const graph::OpDef> dropout_ops();
[[nodiscard]] std::span<const graph::OpDef> eager_ops();
[[nodiscard]] std::span<const graph::OpDef> entropy_loss_ops();
[[nodiscard]] std::span<const graph::OpDef> extremum_ops();
[[nodiscard]] std::span<const graph::OpDef> index_ops();
[[nodiscard]] std::span<const graph::OpDef> index_backward_ops();
[[nodiscard]] std::span<const graph::OpDef> loss_ops();
[[nodiscard]] std::span<const graph::OpDef> loss_backward_ops();
[[nodiscard]] std::span<const graph::OpDef> matmul_ops();
[[nodiscard]] std::span<const graph::OpDef> norm_ops();
[[nodiscard]] std::span<const graph::OpDef> norm_backward_ops();
[[nodiscard]] std::span<const graph::OpDef> padding_ops();
[[nodiscard]] std::span<const graph::OpDef> pooling_ops();
[[nodiscard]] std::span<const graph::OpDef> pooling_backward_ops();
[[nodiscard]] std::span<const graph::OpDef> rearrange_ops();
[[nodiscard]] std::span<const graph::OpDef> reduction_ops();
[[nodiscard]] std::span<const graph::OpDef> resize_ops();
[[nodiscard]] std::span<const graph::OpDef> scan_ops();
[[nodiscard]] std::span<const graph::OpDef> scatter_ops();
[[nodiscard]] std::span<const graph::OpDef> softmax_ops();
[[nodiscard]] std::span<const graph::OpDef> variance_ops();
[[nodiscard]] std::span<const graph::OpDef> window_ops();

// All rows; built at first use, immutable.
[[nodiscard]] const graph::OpTable& op_table();

// The page docs/ops.md: every row, how it is done (native, decomposed, library, eager) and the ATen
// overloads it stands for.
[[nodiscard]] std::string ops_markdown();

}  // namespace inkle::ops
