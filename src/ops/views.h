// Index maps and reference helpers that view and shape rows share.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "graph/op_def.h"
#include "ops/interpreter.h"
#include "ops/lowering.h"

namespace inkle::ops {

// From indices of the result to indices of the operand.
using IndexMap = std::function<std::vector<Expr>(Indices)>;

// For tensors with the same elements in row-major order. Dimensions are matched in groups of equal
// element count, so that a division only appears where a dimension is really split or merged:
//   [a, b, 8] seen as [a*b, 8]:  (i, j) -> (i // b, i % b, j)
[[nodiscard]] IndexMap reshape_map(sym::Context& context, const Sizes& from, const Sizes& to);
// From the indices of broadcast sizes `to`, right-aligned.
[[nodiscard]] IndexMap expand_map(sym::Context& context, const Sizes& from, const Sizes& to);

// The type of argument 0 seen with broadcast sizes; -1 keeps a size.
[[nodiscard]] graph::Type expanded(graph::Inference& args, Sizes sizes);

// Fills the result from tensor argument 0: `source` turns result indices into its indices.
void ref_from(
    Evaluation& e,
    const std::function<void(std::span<const std::int64_t>, std::vector<std::int64_t>&)>& source);

// A dimension sliced by start, end and step, with ATen's clamping.
struct Slice {
  Expr start;
  Expr length;
  std::int64_t step = 1;
};
[[nodiscard]] Slice slice_of(sym::Context& context, Expr size, std::optional<Expr> start,
                             std::optional<Expr> end, std::int64_t step);
// An index counted from the end where it is negative; Unsupported if its sign is unknown.
[[nodiscard]] Expr wrapped_index(Expr index, Expr size);

// A row that only looks at its operand's memory in another way.
constexpr graph::OpDef view_row(std::string_view name, std::string_view schema,
                                std::string_view aten, std::string_view doc,
                                std::vector<graph::Type> (*rule)(graph::Inference&),
                                void (*lower)(Lowering&), void (*reference)(Evaluation&),
                                std::vector<graph::Sample> (*sample)()) {
  return {.name = name,
          .schema = schema,
          .doc = doc,
          .traits = graph::Trait::view,
          .infer = rule,
          .lower = lower,
          .reference = reference,
          .aten = aten,
          .samples = sample};
}

}  // namespace inkle::ops
