// Which values of a joint forward-backward graph are kept for the backward, and which it computes
// again: the cut of least cost.
//
//   %0 = mm(%x, %w)                       kept: x, w (inputs) and %0, since a product is not done
//   %1 = sin(%0)                          twice; cos reads it, and sin is cheap to do again
//   %2 = mm(%1, %v)
//   ... mm(t(%1), %t), cos(%0) ...        computed again: %1, where writing and reading it costs
//                                         more
//
// Every value v has two vertices, "computed again" and "known to the backward". An edge between
// them has the cost of keeping v, an edge from the source to the first that of computing v again;
// what v is computed from has to be known then (an edge without limit), and what the backward reads
// is known (the sink). So the least cut is the least cost, exactly.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "partition/cost.h"

namespace inkle::partition {

// What a joint graph is, beside its nodes.
struct Joint {
  std::size_t forward_outputs =
      0;  // the first outputs are the forward's, the others the backward's
  // By input: known to the backward only.
  std::vector<bool> is_tangent;
  // By input: the host changes it after the forward.
  std::vector<bool> is_written;
  // By input: a tensor that stays as it is from step to step, as weights do. Other inputs are kept
  // only where the backward reads them here or in the host's own partition, since a user may write
  // to them in between.
  std::vector<bool> is_static;
  // By input, and by output of the forward: the backward reads its memory in the host's own
  // partition. Other outputs are kept only where the backward reads them itself and cannot compute
  // them again, for the same reason, and then as copies. Without an entry nothing is known.
  std::vector<bool> is_saved_input = {};
  std::vector<bool> is_saved_output = {};
  // By input: the output of the forward whose tangent it is, or -1. Empty: not known.
  std::vector<std::int32_t> output_of_tangent = {};
  // Never more than this, at the hints of sizes.
  std::int64_t most_bytes = std::int64_t{1} << 60;
};

enum class Weigh : std::uint8_t {
  time,     // seconds of keeping and reading against those of computing again
  kernels,  // the same, where each kernel of the backward reads for itself (kernels.h)
  bytes,    // bytes, and time where they are equal
  nothing,  // nothing but views is computed again
};

struct Cut {
  std::vector<graph::ValueId> kept;  // inputs first, then results of nodes, in order
  std::vector<bool> in_forward;      // by node
  std::vector<bool> in_backward;     // by node; some are in both
  std::int64_t bytes = 0;  // of kept values that do not live anyway, as inputs and outputs do
};

class Problem;

// By node, whether the backward computes it again, in the cut of least cost; nothing if the
// backward needs what can neither be kept nor computed again. Not by kernels.
[[nodiscard]] std::optional<std::vector<bool>> least_cut(const Problem& problem, Weigh weigh);

// The same, by kernels too; throws Unsupported instead.
[[nodiscard]] std::vector<bool> choose(const Problem& problem, Weigh weigh);

// The same with what follows. Throws Unsupported if the graph cannot be cut (the forward reads a
// tangent, the backward writes memory of a caller).
[[nodiscard]] Cut find_cut(const graph::Graph& joint, const Joint& info, const Machine& machine,
                           Weigh weigh);

}  // namespace inkle::partition
