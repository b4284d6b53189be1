// Which outputs of a graph share memory, derived from its views: for frontends whose programs do
// not state it.
#pragma once

#include <optional>

#include "graph/graph.h"
#include "ops/lowering.h"

namespace inkle::ops {

// A tensor as a strided view of its buffer.
struct StridedView {
  Sizes strides;
  Expr offset;
};
// Nullopt if the tensor's map is not linear under these strides of its buffer.
[[nodiscard]] std::optional<StridedView> strided_view(const Tensor& t, const Sizes& buffer_strides,
                                                      sym::Context& context);

// Gives each tensor output that is a view of an input, or of a value that other outputs are or
// view, its place there; the others get storages of their own. An input that is written is returned
// as it is at the end, so only views of the last write are views of it. Values that outputs share
// become row-major where their strides are free.
void share_views(graph::Graph& graph);

}  // namespace inkle::ops
