// Facts about the nodes and values of a joint graph, before anything is decided: needed by the
// forward or the backward, dependent on a tangent, read by a library.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"
#include "partition/cut.h"

namespace inkle::partition {

class Roles {
 public:
  // Throws Unsupported as find_cut() does.
  Roles(const graph::Graph& joint, const Joint& info);

  // Of nodes. Late ones depend on a tangent; the forward's are those that its outputs and effects
  // depend on, the backward's those that gradients do. One may be both.
  [[nodiscard]] bool is_late(std::size_t node) const { return late_[node]; }
  [[nodiscard]] bool in_forward(std::size_t node) const { return forward_[node]; }
  [[nodiscard]] bool in_backward(std::size_t node) const { return backward_[node]; }
  // Reads memory that the forward writes: the backward would read other contents.
  [[nodiscard]] bool reads_written(std::size_t node) const { return reads_written_[node]; }
  // A library call, or a call to the host.
  [[nodiscard]] static bool is_library(const graph::Node& node);
  // All that it reads is made by the forward anyway, or of an output at risk by the backward alone.
  [[nodiscard]] bool has_ready_operands(std::size_t node) const { return ready_[node]; }

  // Of inputs.
  [[nodiscard]] bool is_tangent(std::size_t input) const { return info_.is_tangent[input]; }
  [[nodiscard]] bool may_keep_input(std::size_t input) const;

  // Of values.
  [[nodiscard]] graph::ValueId owner(graph::ValueId v) const { return owners_[v.index]; }
  [[nodiscard]] bool is_literal(graph::ValueId v) const { return literal_[v.index]; }
  [[nodiscard]] bool is_tangent_value(graph::ValueId v) const { return tangent_[v.index]; }
  // A late node of the backward reads it, or the backward returns it.
  [[nodiscard]] bool is_read_late(graph::ValueId v) const { return read_late_[v.index]; }
  // A library reads it, or a view of it, in the backward: it has to be in memory then.
  [[nodiscard]] bool is_operand_late(graph::ValueId v) const { return operand_late_[v.index]; }
  // The forward writes it to memory, whether it is kept or not.
  [[nodiscard]] bool is_stored(std::size_t node, graph::ValueId v) const;
  // In memory that is live anyway: of an input, a literal or an output of the forward.
  [[nodiscard]] bool lives_anyway(graph::ValueId v) const { return lives_[owner(v).index]; }
  // A view of fewer elements than its memory has.
  [[nodiscard]] bool is_part(graph::ValueId v) const;
  // Not opaque ones, and outputs only where the backward reads them here or in the default
  // partition: a user may write to others.
  [[nodiscard]] bool may_keep(graph::ValueId v) const;
  // An output that the backward reads here and not in the host's own partition, since a pass has
  // merged two values: kept only as a last resort, and as a copy, as a user may write to it.
  [[nodiscard]] bool is_last_resort(graph::ValueId v) const;
  // An output that the backward reads only for tangents of rank 0, which a user may merely have
  // logged. Eager allows writes to it as long as no gradient comes from those, but one backward
  // reads all kept values: another value is kept, or it is recomputed, unless that is expensive.
  [[nodiscard]] bool is_at_risk(graph::ValueId v) const { return at_risk_[owner(v).index]; }
  // The bytes of all of them: as many more may be kept, in their place.
  [[nodiscard]] std::int64_t bytes_at_risk() const;
  // The extra cost of keeping such an output, as a multiple of the cost of reading it.
  static constexpr double kPriceOfRisk = 8;

 private:
  void find_late();
  void mark_sides();
  void find_readers();
  void find_risks();
  void find_ready_chains();
  [[nodiscard]] graph::ValueId output_memory(std::int32_t output) const;
  void close(std::vector<bool>& nodes, const std::vector<bool>& roots) const;
  void keep_eager_calls(const std::vector<bool>& early, const std::vector<bool>& late);

  const graph::Graph& joint_;
  const Joint& info_;
  std::vector<graph::ValueId> owners_;
  std::vector<std::int32_t> producer_;
  std::vector<std::uint32_t> uses_;
  // By node.
  std::vector<bool> late_, forward_, backward_, reads_written_, ready_;
  // By value.
  std::vector<bool> literal_, tangent_, late_value_, written_, read_late_, direct_, operand_late_,
      operand_early_, lives_, output_, saved_output_, at_risk_;
};

}  // namespace inkle::partition
