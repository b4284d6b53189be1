#include "partition/cut.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "partition/max_flow.h"
#include "partition/roles.h"

namespace inkle::partition {
namespace {

using graph::Graph;
using graph::has;
using graph::Keep;
using graph::Node;
using graph::Trait;
using graph::ValueId;

constexpr std::int64_t kUnlimited = MaxFlow::kUnlimited;
// Dearer than all else together, so that it is done only where there is no other way.
constexpr double kLastResort = 1e4;  // seconds
constexpr double kUnit = 1e-12;      // of capacities: seconds

std::int64_t capacity(double seconds) {
  return static_cast<std::int64_t>(std::llround(seconds / kUnit));
}

class Network {
 public:
  Network(const Graph& joint, const Joint& info, const Machine& machine, Weigh weigh)
      : joint_(joint),
        roles_(joint, info),
        machine_(machine),
        weigh_(weigh),
        flow_(static_cast<std::uint32_t>(2 + joint.nodes.size() + joint.value_count())) {
    wanted_.resize(joint.nodes.size());
    for (std::size_t i = 0; i < wanted_.size(); ++i) {
      wanted_[i] = roles_.in_backward(i) && !roles_.is_late(i);
    }
    if (weigh != Weigh::nothing) work_ = recompute_work(joint, wanted_);
  }

  Cut run() {
    for (std::size_t i = 0; i < joint_.inputs.size(); ++i) add_input(i);
    for (std::size_t i = 0; i < joint_.nodes.size(); ++i) {
      if (wanted_[i]) add_node(i);
    }
    for (std::uint32_t v = 0; v < joint_.value_count(); ++v) {
      if (roles_.is_read_late({v})) flow_.add(of_value({v}), kSink, kUnlimited);
    }
    if (flow_.run(kSource, kSink) >= kUnlimited) {
      unsupported("the backward needs a value that can neither be kept nor computed again");
    }
    return result();
  }

 private:
  static constexpr std::uint32_t kSource = 0, kSink = 1;
  std::uint32_t of_node(std::size_t i) const { return static_cast<std::uint32_t>(2 + i); }
  std::uint32_t of_value(ValueId v) const {
    return static_cast<std::uint32_t>(2 + joint_.nodes.size() + v.index);
  }

  double seconds_of(ValueId v) const {
    return static_cast<double>(bytes_of(joint_, v)) / machine_.bytes_per_second;
  }

  void add_input(std::size_t i) {
    const ValueId v = joint_.inputs[i].value;
    if (v.is_none() || roles_.is_tangent(i)) return;
    flow_.add(kSource, of_value(v),
              roles_.may_keep_input(i) ? capacity(seconds_of(v)) : kUnlimited);
  }

  void add_node(std::size_t i) {
    const Node& node = joint_.nodes[i];
    flow_.add(kSource, of_node(i), again(i));
    graph::for_each_operand(node, [&](ValueId v) {
      if (!roles_.is_literal(v)) flow_.add(of_value(v), of_node(i), kUnlimited);
    });
    for (const ValueId v : node.results) flow_.add(of_node(i), of_value(v), keep(i, v));
  }

  // What computing a node in the backward costs.
  std::int64_t again(std::size_t i) const {
    const Node& node = joint_.nodes[i];
    if (!roles_.in_forward(i)) return 0;  // the first time, not again
    constexpr Trait kNever = Trait::random | Trait::effect | Trait::eager_only;
    if (node.keep == Keep::saved || has(node.op->traits, kNever) || node.eager_target ||
        roles_.reads_written(i)) {
      return kUnlimited;
    }
    if (node.keep == Keep::recomputed || has(node.op->traits, Trait::view)) return 0;
    if (weigh_ == Weigh::nothing || !work_[i]) return kUnlimited;
    double seconds = work_[i]->operations / machine_.operations_per_second +
                     work_[i]->bytes / machine_.bytes_per_second;
    // What a library reads has to be written for it, by a loop that reads about as much; what a
    // loop reads is computed inside of it.
    for (const ValueId v : node.results) {
      if (roles_.is_operand_late(v)) seconds += 3 * seconds_of(v);
    }
    return capacity(weigh_ == Weigh::bytes ? seconds * kTieBreak : seconds);
  }

  // Capacities of bytes are a million units a byte; a second of computing is worth a thousand.
  static constexpr double kTieBreak = 1e-3, kByte = 1e-6;

  // What keeping a result costs.
  std::int64_t keep(std::size_t i, ValueId v) const {
    const Node& node = joint_.nodes[i];
    if (!roles_.may_keep(v)) return kUnlimited;
    if (node.keep == Keep::recomputed && !has(node.op->traits, Trait::random)) {
      return capacity(kLastResort);
    }
    double extra = 0;
    if (!roles_.in_forward(i)) {
      // The forward would compute it for the backward alone.
      if (weigh_ == Weigh::nothing || !work_[i] || !roles_.has_ready_operands(i)) return kUnlimited;
      extra = work_[i]->operations / machine_.operations_per_second;
    }
    const bool lives = roles_.lives_anyway(v);
    if (has(node.op->traits, Trait::view) && !roles_.is_part(v)) {
      extra += 2 * seconds_of(v);  // what it is a view of is as good, and smaller or as large
    }
    if (weigh_ == Weigh::bytes) {
      const double bytes = lives ? 0 : static_cast<double>(bytes_of(joint_, v));
      return capacity(bytes * kByte + extra * kTieBreak) + 1;
    }
    double times = 1;  // read in the backward
    if (!lives) times += machine_.clears_memory ? 1 : 0;
    if (!roles_.is_stored(i, v)) times += 1;
    return capacity(seconds_of(v) * times + extra) + 1;
  }

  // Walks from what the backward reads to what it is made of.
  Cut result() const {
    Cut cut;
    cut.in_forward.resize(joint_.nodes.size());
    cut.in_backward.resize(joint_.nodes.size());
    const std::vector<std::int32_t> producer = graph::producers(joint_);
    std::vector<bool> is_known(joint_.value_count()), is_kept(joint_.value_count());
    for (std::uint32_t v = 0; v < is_known.size(); ++v) is_known[v] = roles_.is_read_late({v});
    for (std::size_t i = joint_.nodes.size(); i-- > 0;) {
      const Node& node = joint_.nodes[i];
      cut.in_backward[i] = roles_.is_late(i) && roles_.in_backward(i);
      if (!wanted_[i]) continue;
      const bool is_again = !flow_.is_source_side(of_node(i));
      for (const ValueId v : node.results) {
        if (!is_known[v.index]) continue;
        if (is_again) cut.in_backward[i] = true;
        is_kept[v.index] = !is_again;
      }
      if (!cut.in_backward[i]) continue;
      graph::for_each_operand(node, [&](ValueId v) { is_known[v.index] = true; });
    }
    for (const graph::Input& input : joint_.inputs) {
      if (!input.value.is_none() && is_known[input.value.index]) cut.kept.push_back(input.value);
    }
    std::erase_if(cut.kept, [&](ValueId v) { return roles_.is_tangent_value(v); });
    for (const Node& node : joint_.nodes) {
      for (const ValueId v : node.results) {
        if (is_kept[v.index]) cut.kept.push_back(v);
      }
    }
    cut.bytes = kept_bytes(cut.kept, is_kept);
    mark_forward(cut, is_kept, producer);
    return cut;
  }

  // Memory that is kept is counted once, as large as what is kept of it.
  std::int64_t kept_bytes(const std::vector<ValueId>& kept,
                          const std::vector<bool>& is_kept) const {
    std::int64_t total = 0;
    for (const ValueId v : kept) {
      const ValueId owner = roles_.owner(v);
      const bool is_twice = owner.index != v.index && is_kept[owner.index];
      if (!roles_.lives_anyway(v) && !is_twice) total += bytes_of(joint_, v);
    }
    return total;
  }

  void mark_forward(Cut& cut, const std::vector<bool>& is_kept,
                    const std::vector<std::int32_t>& producer) const {
    for (std::size_t i = joint_.nodes.size(); i-- > 0;) {
      const Node& node = joint_.nodes[i];
      const bool gives =
          std::ranges::any_of(node.results, [&](ValueId v) { return is_kept[v.index]; });
      if (!gives && !roles_.in_forward(i) && !cut.in_forward[i]) continue;
      cut.in_forward[i] = true;
      graph::for_each_operand(node, [&](ValueId v) {
        if (producer[v.index] >= 0)
          cut.in_forward[static_cast<std::size_t>(producer[v.index])] = true;
      });
    }
  }

  const Graph& joint_;
  Roles roles_;
  Machine machine_;
  Weigh weigh_;
  MaxFlow flow_;
  std::vector<bool> wanted_;  // nodes of the backward that do not need a tangent
  std::vector<std::optional<Work>> work_;
};

}  // namespace

Cut find_cut(const Graph& joint, const Joint& info, const Machine& machine, Weigh weigh) {
  return Network(joint, info, machine, weigh).run();
}

}  // namespace inkle::partition
