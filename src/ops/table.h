// The one op table: an explicit list of families, no registration.
#pragma once

#include <span>
#include <string>

#include "graph/op_def.h"

namespace inkle::ops {

// Each family is one file beside this one.
[[nodiscard]] std::span<const graph::OpDef> unary_ops();
[[nodiscard]] std::span<const graph::OpDef> binary_ops();
[[nodiscard]] std::span<const graph::OpDef> compare_ops();
[[nodiscard]] std::span<const graph::OpDef> activation_ops();
[[nodiscard]] std::span<const graph::OpDef> creation_ops();
[[nodiscard]] std::span<const graph::OpDef> view_ops();
[[nodiscard]] std::span<const graph::OpDef> shape_ops();
[[nodiscard]] std::span<const graph::OpDef> copy_ops();
[[nodiscard]] std::span<const graph::OpDef> random_ops();

// All rows; built at first use, immutable.
[[nodiscard]] const graph::OpTable& op_table();

// The page docs/ops.md: every row, how it is done (native, decomposed, library, eager) and the ATen
// overloads it stands for.
[[nodiscard]] std::string ops_markdown();

}  // namespace inkle::ops
