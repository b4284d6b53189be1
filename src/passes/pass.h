// What a pass is: a function from a graph to the changed graph, or to nothing when there is nothing
// to do. A pass never changes the graph it is given.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "graph/graph.h"

namespace inkle::passes {

// What products cost on a machine.
struct ProductCosts {
  double flops_per_second = 0;
  double call_seconds =
      0;  // of a library call, beside its arithmetic: launch, first and last tiles
};

struct Options {
  // Weights have become literals: passes may compute with literals of any size.
  bool freeze = false;
  // No library has attention: it becomes products and a softmax.
  bool split_attention = false;
  // Of a joint graph that is to keep few bytes, how many of its first outputs are the forward's.
  std::size_t forward_outputs = 0;
  // Products of one matrix by several parameters may become one.
  std::optional<ProductCosts> products;
};

struct PassContext {
  Options options;
};

using PassFunction = std::optional<graph::Graph> (*)(const graph::Graph&, PassContext&);

}  // namespace inkle::passes
