#include "partition/roles.h"

#include <algorithm>

#include "base/error.h"
#include "passes/effects.h"

namespace inkle::partition {

using graph::Graph;
using graph::has;
using graph::Node;
using graph::Trait;
using graph::ValueId;

namespace {

// The operand that a node gives a view of; none if it gives no view.
ValueId viewed(const Node& node) {
  if (!has(node.op->traits, Trait::view) || node.args.empty()) return {};
  const auto* first = std::get_if<ValueId>(&node.args.front());
  return first == nullptr ? ValueId{} : *first;
}

}  // namespace

Roles::Roles(const Graph& joint, const Joint& info)
    : joint_(joint),
      info_(info),
      owners_(graph::memory_owners(joint)),
      producer_(graph::producers(joint)),
      uses_(graph::use_counts(joint)),
      written_(passes::mutated_values(joint)) {
  const std::size_t values = joint.value_count();
  for (auto* list : {&literal_, &tangent_, &late_value_, &read_late_, &direct_, &operand_late_,
                     &operand_early_, &lives_, &output_, &saved_output_, &at_risk_}) {
    list->assign(values, false);
  }
  for (const auto& constant : joint.constants) {
    literal_[constant.first.index] = lives_[constant.first.index] = true;
  }
  std::vector<bool> written_by_host(values);
  for (std::size_t i = 0; i < joint.inputs.size(); ++i) {
    const ValueId v = joint.inputs[i].value;
    if (v.is_none()) continue;
    lives_[v.index] = true;
    tangent_[v.index] = late_value_[v.index] = info.is_tangent[i];
    written_by_host[v.index] = info.is_written[i];
  }
  for (std::uint32_t v = 0; v < values; ++v) {
    if (written_by_host[owners_[v].index]) written_[v] = true;
  }
  find_late();
  mark_sides();
  find_readers();
  if (!info.output_of_tangent.empty()) find_risks();
}

void Roles::find_late() {
  const std::size_t nodes = joint_.nodes.size();
  for (auto* list : {&late_, &forward_, &backward_, &reads_written_, &ready_}) {
    list->assign(nodes, false);
  }
  for (std::size_t i = 0; i < nodes; ++i) {
    const Node& node = joint_.nodes[i];
    graph::for_each_operand(node, [&](ValueId v) {
      if (late_value_[v.index]) late_[i] = true;
      if (written_[v.index]) reads_written_[i] = true;
    });
    for (const ValueId v : node.results) late_value_[v.index] = late_[i];
  }
}

// Adds what the nodes in `nodes` and the values in `roots` are made of.
void Roles::close(std::vector<bool>& nodes, const std::vector<bool>& roots) const {
  std::vector<bool> values = roots;
  for (std::size_t i = joint_.nodes.size(); i-- > 0;) {
    const Node& node = joint_.nodes[i];
    for (const ValueId v : node.results) nodes[i] = nodes[i] || values[v.index];
    if (nodes[i]) graph::for_each_operand(node, [&](ValueId v) { values[v.index] = true; });
  }
}

// A call to eager may advance the random generator: one that depends on no gradient stays in the
// forward, even if it is unused or used by the backward alone. A pure one that the backward alone
// uses is left to it: it may raise there.
void Roles::keep_eager_calls(const std::vector<bool>& early, const std::vector<bool>& late) {
  for (std::size_t i = 0; i < joint_.nodes.size(); ++i) {
    const auto& target = joint_.nodes[i].eager_target;
    if (!target) continue;
    const bool is_pure = *target < info_.is_pure_call.size() && info_.is_pure_call[*target];
    if (is_pure && backward_[i]) continue;
    (late_[i] ? backward_ : forward_)[i] = true;
  }
  close(forward_, early);
  close(backward_, late);
}

void Roles::mark_sides() {
  std::vector<bool> early(joint_.value_count()), late(joint_.value_count());
  for (std::size_t i = 0; i < joint_.outputs.size(); ++i) {
    const auto* v = std::get_if<ValueId>(&joint_.outputs[i].value);
    if (v == nullptr || v->is_none()) continue;
    const bool is_forward = i < info_.forward_outputs;
    (is_forward ? early : late)[v->index] = true;
    if (!is_forward) continue;
    if (late_value_[v->index]) unsupported("a result of the forward depends on gradients");
    output_[owners_[v->index].index] = lives_[owners_[v->index].index] = true;
    if (i < info_.is_saved_output.size() && info_.is_saved_output[i]) {
      saved_output_[owners_[v->index].index] = true;
    }
  }
  for (std::size_t i = 0; i < joint_.nodes.size(); ++i) {
    const Node& node = joint_.nodes[i];
    const bool has_effect = has(node.op->traits, Trait::effect);
    if (has_effect && late_[i]) unsupported("the backward writes to memory of its caller");
    if (has_effect) (late_[i] ? backward_ : forward_)[i] = true;
  }
  close(forward_, early);
  close(backward_, late);
  keep_eager_calls(early, late);
  for (std::size_t i = 0; i < joint_.nodes.size(); ++i) {
    ready_[i] = true;
    graph::for_each_operand(joint_.nodes[i], [&](ValueId v) {
      const std::int32_t producer = producer_[v.index];
      if (late_value_[v.index]) ready_[i] = false;
      if (producer >= 0 && !forward_[static_cast<std::size_t>(producer)]) ready_[i] = false;
    });
    for (const ValueId v : joint_.nodes[i].results) {
      const bool is_backward_output = late[v.index] && !late_[i];
      if (is_backward_output) read_late_[v.index] = direct_[v.index] = true;
    }
  }
  for (const graph::Input& input : joint_.inputs) {
    if (input.value.is_none() || tangent_[input.value.index] || !late[input.value.index]) continue;
    read_late_[input.value.index] = direct_[input.value.index] = true;
  }
}

bool Roles::is_library(const Node& node) {
  return node.eager_target || node.op->library || has(node.op->traits, Trait::contraction) ||
         has(node.op->traits, Trait::eager_only);
}

void Roles::find_readers() {
  for (std::size_t i = joint_.nodes.size(); i-- > 0;) {
    const Node& node = joint_.nodes[i];
    const bool is_late = late_[i] && backward_[i];
    graph::for_each_operand(node, [&](ValueId v) {
      if (late_value_[v.index] || literal_[v.index]) return;
      // What only the backward computes, or checkpointing computes again, reads it there in the
      // default partition, too.
      const bool is_again = node.keep == graph::Keep::recomputed;
      if (backward_[i] && (!forward_[i] || is_again)) direct_[v.index] = true;
      if (is_late) read_late_[v.index] = true;
      if (is_late && is_library(node)) operand_late_[v.index] = true;
      if (forward_[i] && is_library(node)) operand_early_[v.index] = true;
    });
    const ValueId base = viewed(node);
    if (base.is_none()) continue;
    for (const ValueId v : node.results) {
      if (operand_early_[v.index]) operand_early_[base.index] = true;
      if (late_[i]) continue;
      if (direct_[v.index]) direct_[base.index] = true;
      if (operand_late_[v.index]) operand_late_[base.index] = true;
    }
  }
}

void Roles::find_risks() {
  // By value: it is a tangent of an output with dimensions, or depends on one; it lies in an output
  // that has a tangent; what depends on such a tangent reads it.
  std::vector<bool> depends(joint_.value_count()), has_tangent(joint_.value_count()),
      reads(joint_.value_count());
  for (std::size_t i = 0; i < joint_.inputs.size(); ++i) {
    if (!info_.is_tangent[i]) continue;
    const ValueId tangent = joint_.inputs[i].value;
    depends[tangent.index] = joint_.type(tangent).rank() > 0;
    const ValueId memory = output_memory(info_.output_of_tangent[i]);
    if (!memory.is_none()) has_tangent[memory.index] = true;
  }
  const auto is_any = [](const std::vector<bool>& of, const std::vector<ValueId>& values) {
    return std::ranges::any_of(values, [&](ValueId v) { return of[v.index]; });
  };
  for (std::size_t i = 0; i < joint_.nodes.size(); ++i) {
    if (!late_[i]) continue;
    bool found = false;
    graph::for_each_operand(joint_.nodes[i], [&](ValueId v) { found = found || depends[v.index]; });
    for (const ValueId v : joint_.nodes[i].results) depends[v.index] = found;
  }
  for (std::size_t i = joint_.nodes.size(); i-- > 0;) {
    const Node& node = joint_.nodes[i];
    if (!backward_[i] || (!late_[i] && forward_[i] && viewed(node).is_none())) continue;
    if (!is_any(late_[i] ? depends : reads, node.results)) continue;
    graph::for_each_operand(node, [&](ValueId v) { reads[v.index] = true; });
  }
  for (std::uint32_t v = 0; v < reads.size(); ++v) {
    if (direct_[v] && has_tangent[owners_[v].index]) at_risk_[owners_[v].index] = true;
  }
  for (std::uint32_t v = 0; v < reads.size(); ++v) {
    if (reads[v] || !saved_output_[v] || producer_[v] < 0) at_risk_[v] = false;
    if (reads[v]) at_risk_[owners_[v].index] = false;
  }
  find_ready_chains();
}

// The memory that an output of the forward lies in; none if it is no tensor.
ValueId Roles::output_memory(std::int32_t output) const {
  if (output < 0) return {};
  const auto& value = joint_.outputs[static_cast<std::size_t>(output)].value;
  const auto* v = std::get_if<ValueId>(&value);
  return v == nullptr || v->is_none() ? ValueId{} : owners_[v->index];
}

// What the backward alone makes of an output at risk, by several nodes, may be kept in its place.
void Roles::find_ready_chains() {
  std::vector<bool> is_made(joint_.nodes.size());  // by such nodes
  for (std::size_t i = 0; i < joint_.nodes.size(); ++i) {
    if (late_[i] || forward_[i] || !backward_[i]) continue;
    bool is_ready = true;
    graph::for_each_operand(joint_.nodes[i], [&](ValueId v) {
      const std::int32_t from = producer_[v.index];
      const auto producer = static_cast<std::size_t>(from);
      const bool is_forward = from < 0 || forward_[producer];
      if (at_risk_[owners_[v.index].index] || (!is_forward && is_made[producer])) {
        is_made[i] = true;
      } else if (!is_forward) {
        is_ready = is_ready && ready_[producer] && !viewed(joint_.nodes[producer]).is_none();
      }
    });
    is_made[i] = is_made[i] && is_ready;
    if (is_made[i]) ready_[i] = true;
  }
}

std::int64_t Roles::bytes_at_risk() const {
  std::int64_t total = 0;
  for (std::uint32_t v = 0; v < at_risk_.size(); ++v) {
    if (at_risk_[v]) total += bytes_of(joint_, {v});
  }
  return total;
}

bool Roles::may_keep_input(std::size_t input) const {
  const ValueId v = joint_.inputs[input].value;
  const bool is_saved = input < info_.is_saved_input.size() && info_.is_saved_input[input];
  return direct_[v.index] || ((info_.is_static[input] || is_saved) && !written_[v.index]);
}

bool Roles::is_stored(std::size_t node, ValueId v) const {
  return lives_anyway(v) || operand_early_[v.index] || is_library(joint_.nodes[node]) ||
         has(joint_.nodes[node].op->traits, Trait::reduction);
}

bool Roles::is_part(ValueId v) const {
  const ValueId memory = owner(v);
  return memory.index != v.index && bytes_of(joint_, v) < bytes_of(joint_, memory);
}

bool Roles::may_keep(ValueId v) const {
  if (joint_.type(v).dtype == abi::DType::opaque) return false;
  if (!output_[owner(v).index] || saved_output_[owner(v).index]) return true;
  return direct_[v.index];
}

bool Roles::is_last_resort(ValueId v) const {
  if (info_.is_saved_output.empty()) return false;  // not known
  return output_[owner(v).index] && !saved_output_[owner(v).index];
}

}  // namespace inkle::partition
