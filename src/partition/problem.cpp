#include "partition/problem.h"

#include <algorithm>

namespace inkle::partition {

using graph::has;
using graph::Node;
using graph::Trait;
using graph::ValueId;

Problem::Problem(const graph::Graph& joint_graph, const Joint& joint_info,
                 const Machine& on_machine)
    : joint(joint_graph),
      info(joint_info),
      machine(on_machine),
      roles(joint_graph, joint_info),
      most_bytes(joint_info.most_bytes + roles.bytes_at_risk()),
      wanted(joint_graph.nodes.size()),
      producer(graph::producers(joint_graph)) {
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    wanted[i] = roles.in_backward(i) && !roles.is_late(i);
  }
  work = recompute_work(joint, wanted);
}

bool Problem::may_repeat(std::size_t i) const {
  if (!roles.in_forward(i)) return true;  // only computed there, not recomputed
  const Node& node = joint.nodes[i];
  constexpr Trait kNever = Trait::random | Trait::effect | Trait::eager_only;
  if (node.keep == graph::Keep::saved || has(node.op->traits, kNever) || node.eager_target ||
      roles.reads_written(i)) {
    return false;
  }
  return node.keep == graph::Keep::recomputed || has(node.op->traits, Trait::view) || work[i];
}

// Walks from what the backward reads to what it is made of.
Cut Problem::cut(const std::vector<bool>& again) const {
  Cut cut;
  cut.in_forward.resize(joint.nodes.size());
  cut.in_backward.resize(joint.nodes.size());
  std::vector<bool> is_known(joint.value_count()), is_kept(joint.value_count());
  for (std::uint32_t v = 0; v < is_known.size(); ++v) is_known[v] = roles.is_read_late({v});
  for (std::size_t i = joint.nodes.size(); i-- > 0;) {
    const Node& node = joint.nodes[i];
    cut.in_backward[i] = roles.is_late(i) && roles.in_backward(i);
    if (!wanted[i]) continue;
    for (const ValueId v : node.results) {
      if (!is_known[v.index]) continue;
      if (again[i]) cut.in_backward[i] = true;
      is_kept[v.index] = !again[i];
    }
    if (!cut.in_backward[i]) continue;
    graph::for_each_operand(node, [&](ValueId v) { is_known[v.index] = true; });
  }
  for (const graph::Input& input : joint.inputs) {
    if (!input.value.is_none() && is_known[input.value.index]) cut.kept.push_back(input.value);
  }
  std::erase_if(cut.kept, [&](ValueId v) { return roles.is_tangent_value(v); });
  for (const Node& node : joint.nodes) {
    for (const ValueId v : node.results) {
      if (is_kept[v.index]) cut.kept.push_back(v);
    }
  }
  cut.bytes = kept_bytes(cut, is_kept);
  mark_forward(cut, is_kept);
  return cut;
}

// Memory that is kept is counted once, as large as what is kept of it.
std::int64_t Problem::kept_bytes(const Cut& cut, const std::vector<bool>& is_kept) const {
  std::int64_t total = 0;
  for (const ValueId v : cut.kept) {
    const ValueId owner = roles.owner(v);
    const bool is_twice = owner.index != v.index && is_kept[owner.index];
    if (!roles.lives_anyway(v) && !is_twice) total += bytes_of(joint, v);
  }
  return total;
}

void Problem::mark_forward(Cut& cut, const std::vector<bool>& is_kept) const {
  for (std::size_t i = joint.nodes.size(); i-- > 0;) {
    const Node& node = joint.nodes[i];
    const bool gives =
        std::ranges::any_of(node.results, [&](ValueId v) { return is_kept[v.index]; });
    if (!gives && !roles.in_forward(i) && !cut.in_forward[i]) continue;
    cut.in_forward[i] = true;
    graph::for_each_operand(node, [&](ValueId v) {
      if (producer[v.index] >= 0)
        cut.in_forward[static_cast<std::size_t>(producer[v.index])] = true;
    });
  }
}

}  // namespace inkle::partition
