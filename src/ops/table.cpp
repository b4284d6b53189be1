// The explicit list of families, and the docs page generated from it.
#include "ops/table.h"

#include <fmt/format.h>

#include <array>

namespace inkle::ops {

const graph::OpTable& op_table() {
  static const graph::OpTable table = [] {
    const std::array families = {
        unary_ops(),
        numeric_ops(),
        binary_ops(),
        compare_ops(),
        ternary_ops(),
        activation_ops(),
        activation_backward_ops(),
        creation_ops(),
        view_ops(),
        slice_ops(),
        strided_ops(),
        shape_ops(),
        shape_backward_ops(),
        copy_ops(),
        random_ops(),
        // contracting, reducing, moving by index
        adaptive_pooling_ops(),
        attention_ops(),
        attention_backward_ops(),
        attention_training_ops(),
        batch_norm_ops(),
        composite_ops(),
        composite_math_ops(),
        composite_float_ops(),
        convolution_ops(),
        convolution_backward_ops(),
        dropout_ops(),
        eager_ops(),
        entropy_loss_ops(),
        extremum_ops(),
        index_ops(),
        index_backward_ops(),
        loss_ops(),
        loss_backward_ops(),
        matmul_ops(),
        norm_ops(),
        norm_backward_ops(),
        padding_ops(),
        pooling_ops(),
        pooling_backward_ops(),
        rearrange_ops(),
        reduction_ops(),
        resize_ops(),
        scan_ops(),
        scatter_ops(),
        softmax_ops(),
        variance_ops(),
        window_ops(),
    };
    return graph::OpTable(families);
  }();
  return table;
}

namespace {

std::string_view how(const graph::OpDef& op) {
  if (graph::has(op.traits, graph::Trait::eager_only)) return "eager";
  if (op.library) return "library";
  if (op.decompose != nullptr) return "decomposed";
  return graph::has(op.traits, graph::Trait::view) ? "view" : "native";
}

// A bar would end the cell.
std::string cell(std::string_view text) {
  std::string escaped;
  for (char c : text) {
    if (c == '|') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

}  // namespace

std::string ops_markdown() {
  std::string text =
      "# Ops\n\n"
      "Generated from the op table. How an op runs:\n- native: generated loops;\n- view: an index "
      "map, without work;\n- decomposed: by other rows;\n- library: a contraction or another "
      "library call;\n- eager: by the host framework.\n\n"
      "| op | arguments | how | ATen overloads | meaning |\n|---|---|---|---|---|\n";
  for (const graph::OpDef* op : op_table().all()) {
    if (op->name == "eager") continue;
    text += fmt::format("| `{}` | `{}` | {} | {} | {} |\n", op->name, op->schema, how(*op),
                        op->aten, cell(op->doc));
  }
  return text;
}

}  // namespace inkle::ops
