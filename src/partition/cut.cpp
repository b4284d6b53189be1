#include "partition/cut.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "partition/kernels.h"
#include "partition/max_flow.h"
#include "partition/problem.h"

namespace inkle::partition {
namespace {

using graph::Graph;
using graph::has;
using graph::Keep;
using graph::Node;
using graph::Trait;
using graph::ValueId;

constexpr std::int64_t kUnlimited = MaxFlow::kUnlimited;
// Larger than all other costs together: chosen only where nothing else is possible.
constexpr double kLastResort = 1e4;  // seconds
constexpr double kUnit = 1e-12;      // of capacities: seconds

std::int64_t capacity(double seconds) {
  return static_cast<std::int64_t>(std::llround(seconds / kUnit));
}

class Network {
 public:
  Network(const Problem& problem, Weigh weigh)
      : problem_(problem),
        joint_(problem.joint),
        roles_(problem.roles),
        machine_(problem.machine),
        weigh_(weigh),
        flow_(static_cast<std::uint32_t>(2 + joint_.nodes.size() + joint_.value_count())) {}

  std::optional<std::vector<bool>> run() {
    for (std::size_t i = 0; i < joint_.inputs.size(); ++i) add_input(i);
    for (std::size_t i = 0; i < joint_.nodes.size(); ++i) {
      if (problem_.wanted[i]) add_node(i);
    }
    for (std::uint32_t v = 0; v < joint_.value_count(); ++v) {
      if (roles_.is_read_late({v})) flow_.add(of_value({v}), kSink, kUnlimited);
    }
    if (flow_.run(kSource, kSink) >= kUnlimited) return std::nullopt;
    std::vector<bool> again(joint_.nodes.size());
    for (std::size_t i = 0; i < again.size(); ++i) {
      again[i] = problem_.wanted[i] && !flow_.is_source_side(of_node(i));
    }
    return again;
  }

 private:
  static constexpr std::uint32_t kSource = 0, kSink = 1;
  std::uint32_t of_node(std::size_t i) const { return static_cast<std::uint32_t>(2 + i); }
  std::uint32_t of_value(ValueId v) const {
    return static_cast<std::uint32_t>(2 + joint_.nodes.size() + v.index);
  }

  void add_input(std::size_t i) {
    const ValueId v = joint_.inputs[i].value;
    if (v.is_none() || roles_.is_tangent(i)) return;
    flow_.add(kSource, of_value(v),
              roles_.may_keep_input(i) ? capacity(problem_.seconds_of(v)) : kUnlimited);
  }

  void add_node(std::size_t i) {
    const Node& node = joint_.nodes[i];
    flow_.add(kSource, of_node(i), again(i));
    graph::for_each_operand(node, [&](ValueId v) {
      if (!roles_.is_literal(v)) flow_.add(of_value(v), of_node(i), kUnlimited);
    });
    for (const ValueId v : node.results) flow_.add(of_node(i), of_value(v), keep(i, v));
  }

  // The cost of computing a node in the backward.
  std::int64_t again(std::size_t i) const {
    const Node& node = joint_.nodes[i];
    if (!roles_.in_forward(i)) return 0;  // only computed there, not recomputed
    if (!problem_.may_repeat(i)) return kUnlimited;
    if (node.keep == Keep::recomputed || has(node.op->traits, Trait::view)) return 0;
    if (weigh_ == Weigh::nothing) return kUnlimited;
    double seconds = problem_.work[i]->operations / machine_.operations_per_second +
                     problem_.work[i]->bytes / machine_.bytes_per_second;
    // What a library reads is materialised, by a loop that reads about as much; what a loop reads
    // is fused into it.
    for (const ValueId v : node.results) {
      if (roles_.is_operand_late(v)) seconds += 3 * problem_.seconds_of(v);
    }
    return capacity(weigh_ == Weigh::bytes ? seconds * kTieBreak : seconds);
  }

  // Capacities by bytes: a million units a byte; a second of computing counts as a thousand bytes.
  static constexpr double kTieBreak = 1e-3, kByte = 1e-6;

  // The cost of saving a result.
  std::int64_t keep(std::size_t i, ValueId v) const {
    const Node& node = joint_.nodes[i];
    if (!roles_.may_keep(v)) return kUnlimited;
    const bool is_tagged = node.keep == Keep::recomputed && !has(node.op->traits, Trait::random);
    if (is_tagged || roles_.is_last_resort(v)) return capacity(kLastResort);
    double extra = 0;
    if (!roles_.in_forward(i)) {
      // The forward would compute it for the backward alone.
      if (weigh_ == Weigh::nothing || !problem_.work[i] || !roles_.has_ready_operands(i))
        return kUnlimited;
      extra = problem_.work[i]->operations / machine_.operations_per_second;
    }
    const bool lives = roles_.lives_anyway(v);
    if (has(node.op->traits, Trait::view) && !roles_.is_part(v)) {
      extra += 2 * problem_.seconds_of(v);  // its base serves as well, and is no larger
    }
    if (weigh_ == Weigh::bytes) {
      const bool is_free = lives && !roles_.is_at_risk(v);
      const double bytes = is_free ? 0 : static_cast<double>(bytes_of(joint_, v));
      return capacity(bytes * kByte + extra * kTieBreak) + 1;
    }
    double times = roles_.is_at_risk(v) ? 1 + Roles::kPriceOfRisk : 1;  // read in the backward
    if (!lives) times += machine_.clears_memory ? 1 : 0;
    if (!roles_.is_stored(i, v)) times += 1;
    return capacity(problem_.seconds_of(v) * times + extra) + 1;
  }

  const Problem& problem_;
  const Graph& joint_;
  const Roles& roles_;
  const Machine& machine_;
  Weigh weigh_;
  MaxFlow flow_;
};

}  // namespace

std::optional<std::vector<bool>> least_cut(const Problem& problem, Weigh weigh) {
  return Network(problem, weigh).run();
}

std::vector<bool> choose(const Problem& problem, Weigh weigh) {
  auto again = least_cut(problem, weigh == Weigh::kernels ? Weigh::time : weigh);
  if (!again) {
    unsupported("the backward needs a value that can neither be saved nor recomputed");
  }
  if (weigh != Weigh::kernels) return *again;
  // The search is local. It starts from the minimum cut, and from the partition that recomputes
  // nothing.
  Chosen best = refined(problem, std::move(*again));
  if (auto none = least_cut(problem, Weigh::nothing)) {
    Chosen other = refined(problem, std::move(*none));
    if (other.fits >= best.fits && other.seconds <= best.seconds) best = std::move(other);
  }
  return std::move(best.again);
}

Cut find_cut(const Graph& joint, const Joint& info, const Machine& machine, Weigh weigh) {
  const Problem problem(joint, info, machine);
  return problem.cut(choose(problem, weigh));
}

}  // namespace inkle::partition
