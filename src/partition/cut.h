// Which values of a joint forward-backward graph are saved for the backward, and which it
// recomputes: a minimum cut.
//
//   %0 = mm(%x, %w)                       kept: x, w (inputs) and %0, since a GEMM is not
//   %1 = sin(%0)                          recomputed; cos reads it, and sin is cheap to recompute
//   %2 = mm(%1, %v)
//   ... mm(t(%1), %t), cos(%0) ...        recomputed: %1, where writing and reading it costs more
//
// Every node that may be recomputed has a vertex, and every value has one. An edge from the source
// to a node costs as much as recomputing it; an edge from a node to its result, as much as saving
// the result. Edges from operands to nodes, and from what the backward reads to the sink, have no
// limit. So the minimum cut has exactly the least cost.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "partition/cost.h"

namespace inkle::partition {

// What a joint graph's nodes do not say of it.
struct Joint {
  std::size_t forward_outputs =
      0;  // the first outputs are the forward's, the others the backward's
  // By input: known to the backward only.
  std::vector<bool> is_tangent;
  // By input: the host changes it after the forward.
  std::vector<bool> is_written;
  // By input: the same tensor from step to step, as a weight. Other inputs are kept only where the
  // backward reads them here or in the host's own partition, since a user may write to them in
  // between.
  std::vector<bool> is_static;
  // By input, and by output of the forward: the backward reads its memory in the host's own
  // partition. Other outputs are kept only where the backward reads them itself and cannot compute
  // them again, for the same reason, and then as copies. Without an entry nothing is known.
  std::vector<bool> is_saved_input = {};
  std::vector<bool> is_saved_output = {};
  // By input: the output of the forward whose tangent it is, or -1. Empty: not known.
  std::vector<std::int32_t> output_of_tangent = {};
  // By number of a call to eager: its op neither draws random numbers nor writes. Calls without an
  // entry may.
  std::vector<bool> is_pure_call = {};
  // The most bytes that may be kept, at the hints of sizes.
  std::int64_t most_bytes = std::int64_t{1} << 60;
};

enum class Weigh : std::uint8_t {
  time,     // seconds of saving and reading against those of recomputing
  kernels,  // the same, where each kernel of the backward reads for itself (kernels.h)
  bytes,    // bytes, and time where they are equal
  nothing,  // nothing but views is recomputed
};

struct Cut {
  std::vector<graph::ValueId> kept;  // inputs first, then results of nodes, in order
  std::vector<bool> in_forward;      // by node
  std::vector<bool> in_backward;     // by node; some are in both
  std::int64_t bytes = 0;  // of kept values that are not live anyway, as inputs and outputs are
};

class Problem;

// By node, whether the backward recomputes it, in the minimum cut; nothing if the backward needs a
// value that can neither be kept nor recomputed. Not for Weigh::kernels.
[[nodiscard]] std::optional<std::vector<bool>> least_cut(const Problem& problem, Weigh weigh);

// The same, also for Weigh::kernels; throws Unsupported instead.
[[nodiscard]] std::vector<bool> choose(const Problem& problem, Weigh weigh);

// The same as a whole partition. Throws Unsupported if the graph cannot be partitioned (the forward
// reads a tangent, the backward writes memory of the caller).
[[nodiscard]] Cut find_cut(const graph::Graph& joint, const Joint& info, const Machine& machine,
                           Weigh weigh);

}  // namespace inkle::partition
