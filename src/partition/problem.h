// What all cuts of a joint graph share: what may be kept, what may be recomputed, and what follows
// from a choice. Made once, however many cuts are tried.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "partition/cost.h"
#include "partition/cut.h"
#include "partition/roles.h"

namespace inkle::partition {

class Problem {
 public:
  // The graph and `info` must outlive it. Throws Unsupported as find_cut() does.
  Problem(const graph::Graph& joint, const Joint& info, const Machine& machine);

  const graph::Graph& joint;
  const Joint& info;
  const Machine machine;
  const Roles roles;
  // What may be kept: what the host's own partition keeps, and as much as lies in outputs at risk.
  const std::int64_t most_bytes;
  // By node: the backward needs it, and it needs no tangent, so there is a choice.
  std::vector<bool> wanted;
  // By node, of wanted ones: recompute_work().
  std::vector<std::optional<Work>> work;
  // By value: the node that computes it, or -1.
  std::vector<std::int32_t> producer;

  // A wanted node may be computed in the backward, whatever that costs.
  [[nodiscard]] bool may_repeat(std::size_t node) const;
  // What follows if wanted nodes are computed in the backward where `again` says so, and the
  // results that it needs of others are kept.
  [[nodiscard]] Cut cut(const std::vector<bool>& again) const;
  [[nodiscard]] double seconds_of(graph::ValueId v) const {
    return static_cast<double>(bytes_of(joint, v)) / machine.bytes_per_second;
  }

 private:
  [[nodiscard]] std::int64_t kept_bytes(const Cut& cut, const std::vector<bool>& is_kept) const;
  void mark_forward(Cut& cut, const std::vector<bool>& is_kept) const;
};

}  // namespace inkle::partition
