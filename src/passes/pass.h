// What a pass is: a function from a graph to the changed graph, or to nothing when there is nothing
// to do. A pass never changes the graph it is given.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "graph/graph.h"

namespace inkle::passes {

struct Options {
  // Weights have become literals: passes may compute with literals of any size.
  bool freeze = false;
  // No library has attention: it becomes products and a softmax.
  bool split_attention = false;
};

struct PassContext {
  Options options;
};

using PassFunction = std::optional<graph::Graph> (*)(const graph::Graph&, PassContext&);

}  // namespace inkle::passes
