// What a pass is: a function from a graph to the changed graph, or to nothing when there is nothing
// to do. A pass never changes the graph it is given.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace inkle::passes {

// The costs of GEMMs on a machine.
struct GemmCosts {
  double flops_per_second = 0;
  double call_seconds =
      0;  // of a library call, beside its arithmetic: launch, first and last tiles
};

// Decomposed attention and its gradient, as a pair of calls to the host would take them.
struct AttentionRequest {
  // (batch, head, row, feature), with the strides that they would have where nothing is copied.
  graph::Type query, key, value, grad;
  std::optional<graph::Type> bias;  // added to the scores, of as many dimensions or fewer
  bool is_causal = false;
  double scale = 1, dropout = 0;
  std::string forward_source, backward_source;
};
struct AttentionCalls {
  std::string name;
  // Indices of the host's callables: (query, key, value[, bias]) -> results; (grad, query, key,
  // value, results..., [, bias]) -> gradients.
  std::uint32_t forward = 0, backward = 0;
  std::vector<graph::Type> results;    // attention, and what the backward reads of the forward
  std::vector<graph::Type> gradients;  // of query, key and value
};

struct Options {
  // Weights have become literals: passes may compute with literals of any size.
  bool freeze = false;
  // No library has attention: it is decomposed into matrix products and a softmax.
  bool split_attention = false;
  // A library runs attention, and gives 0 for fully masked rows.
  bool safe_attention = false;
  // Of a joint graph that is to keep few bytes, how many of its first outputs are the forward's.
  std::size_t forward_outputs = 0;
  // GEMMs of one matrix by several parameters may be fused horizontally.
  std::optional<GemmCosts> gemm_costs;
  // The host's attention with its gradient, for joint graphs on a device; nothing where it has
  // none.
  std::function<std::optional<AttentionCalls>(const AttentionRequest&)> attention;
};

struct PassContext {
  Options options;
};

using PassFunction = std::optional<graph::Graph> (*)(const graph::Graph&, PassContext&);

}  // namespace inkle::passes
