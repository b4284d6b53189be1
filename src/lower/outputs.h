// What a program returns: decides for each output whether its buffer can be returned as it is, is a
// view of an input, or must be copied. For the files of this folder only.
#pragma once

#include <cstdint>

#include "graph/graph.h"
#include "loop/program.h"
#include "ops/lowering.h"

namespace inkle::lower {

// A tensor as a strided view of its buffer.
struct StridedView {
  graph::Sizes strides;
  sym::Expr offset;
};
// Nullopt if the tensor's map is not linear under these strides of its buffer.
[[nodiscard]] std::optional<StridedView> strided_view(const ops::Tensor& t,
                                                      const graph::Sizes& buffer_strides,
                                                      sym::Context& context);

// Appends the graph's outputs to the program; may append copy nests. Duplicate values share one
// buffer, different values never do.
void record_outputs(const graph::Graph& graph, ops::LoweringState& state, loop::Program& program);

}  // namespace inkle::lower
