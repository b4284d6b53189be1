// A joint forward-backward graph -> a forward and a backward graph, and the values that are saved
// between them. Runs after the joint passes and before lowering.
//
//   joint(x, w; dy):  y = f(x, w)          forward(x, w) -> y, kept...
//                     dx, dw = g(x, w, dy)  backward(kept..., dy) -> dx, dw
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "partition/cut.h"

namespace inkle::partition {

struct Kept {
  // Position among the joint graph's inputs; of a value that is computed, kComputed.
  static constexpr std::size_t kComputed = ~std::size_t{0};
  std::size_t input = kComputed;
  graph::ValueId in_forward, in_backward;
  std::string source;      // of the node that computes it
  std::size_t result = 0;  // which of its results
};

struct TrainingGraphs {
  // The inputs that are no tangents -> the forward's outputs, kept values, kept symbols.
  graph::Graph forward;
  // Kept symbols, kept values, tangents -> the backward's outputs.
  graph::Graph backward;
  std::vector<Kept> kept;
  std::vector<std::size_t> symbols;  // positions among the joint graph's inputs
  std::int64_t bytes = 0;            // Cut::bytes
  std::size_t forward_outputs = 0;

  // Both graphs agree on the strides of kept value `i`. False, and nothing changes, where the
  // forward's are settled.
  bool set_strides(std::size_t i, const graph::Sizes& strides);
  // Kept values without strides become row-major.
  void settle_strides();
};

// The best partition by `weigh`; where it keeps more than info.most_bytes, by bytes, then the one
// that recomputes nothing. Throws Unsupported where all keep more, and as find_cut() does.
[[nodiscard]] TrainingGraphs partition(const graph::Graph& joint, const Joint& info,
                                       const Machine& machine, Weigh weigh = Weigh::time);

}  // namespace inkle::partition
