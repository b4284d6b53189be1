#include "partition/kernels.h"

#include <algorithm>

#include "partition/groups.h"

namespace inkle::partition {
namespace {

using graph::has;
using graph::Keep;
using graph::Node;
using graph::Trait;
using graph::ValueId;

// The penalty of a byte that is kept, beside its transfers, in bytes of transfer: of choices of
// about equal time, the one that keeps less wins.
constexpr double kPriceOfMemory = 0.1;
// The cost of keeping what must not be kept, or only as a last resort: above all others together.
constexpr double kForbidden = 1e3;  // seconds
// Gains below this are noise of the sums.
constexpr double kLeastGain = 1e-9;  // seconds
constexpr int kMostRounds = 6;

// The cost of a choice, updated incrementally while nodes change sides.
//
// A kernel here is a group of the backward (groups.h), or one that materialises a recomputed value:
// one that a library reads, or that more than a loop over results computes. Its leaves are the
// values that it reads: kept ones, inputs, results of other kernels.
class Ledger {
 public:
  Ledger(const Problem& problem, std::vector<bool> again)
      : problem_(problem),
        joint_(problem.joint),
        again_(std::move(again)),
        groups_(find_groups(problem)),
        kernel_of_(joint_.nodes.size(), kNone),
        users_(joint_.nodes.size()),
        readers_(joint_.value_count()),
        stamp_(joint_.value_count()),
        node_stamp_(joint_.nodes.size()),
        is_for_forward_(joint_.value_count()) {
    for (std::size_t i = 0; i < joint_.inputs.size(); ++i) {
      const ValueId v = joint_.inputs[i].value;
      if (!v.is_none()) is_for_forward_[v.index] = !problem_.roles.may_keep_input(i);
    }
    for (auto& roots : groups_.reads) kernels_.push_back({.roots = std::move(roots)});
    add_outputs();
    const std::size_t fixed = kernels_.size();
    add_writers();
    for (std::uint32_t k = 0; k < fixed; ++k) acquire(k);
  }

  [[nodiscard]] double seconds() const { return seconds_; }
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }
  [[nodiscard]] const std::vector<bool>& again() const { return again_; }
  // Whether some kernel reads the node's results, or computes them.
  [[nodiscard]] bool is_used(std::size_t node) const { return !users_[node].empty(); }
  void set_unused(std::size_t node, bool again) { again_[node] = again; }

  void toggle(std::size_t node) {
    const std::vector<std::uint32_t> affected = users_[node];
    for (const std::uint32_t k : affected) {
      if (kernels_[k].is_counted) remove(k);
    }
    again_[node] = !again_[node];
    for (const std::uint32_t k : affected) {
      if (kernels_[k].uses > 0 && !kernels_[k].is_counted) add(k);
    }
  }

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  struct Leaf {
    ValueId value;
    double seconds = 0;  // to read it, or the part that is read
  };
  struct Kernel {
    std::vector<ValueId> roots;
    std::size_t writes = ~std::size_t{0};  // node whose results it writes
    std::uint32_t uses = 0;
    bool is_counted = false;
    double seconds = 0;  // while it is counted
    std::vector<Leaf> leaves;
    std::vector<std::uint32_t> nodes;  // whose side matters to it
  };

  // Results of the backward that need no tangent.
  void add_outputs() {
    for (std::size_t i = problem_.info.forward_outputs; i < joint_.outputs.size(); ++i) {
      const auto* v = std::get_if<ValueId>(&joint_.outputs[i].value);
      if (v == nullptr || v->is_none() || problem_.producer[v->index] < 0) continue;
      const auto node = static_cast<std::size_t>(problem_.producer[v->index]);
      if (problem_.wanted[node]) kernels_.push_back({.roots = {*v}});
    }
  }

  void add_writers() {
    for (std::size_t i = 0; i < joint_.nodes.size(); ++i) {
      const Node& node = joint_.nodes[i];
      if (!problem_.wanted[i] || has(node.op->traits, Trait::view)) continue;
      const bool is_operand = std::ranges::any_of(
          node.results, [&](ValueId v) { return problem_.roles.is_operand_late(v); });
      const bool is_loop = problem_.work[i] && problem_.work[i]->bytes == 0;
      if (!is_operand && is_loop) continue;
      Kernel kernel{.writes = i};
      graph::for_each_operand(node, [&](ValueId v) { kernel.roots.push_back(v); });
      kernel_of_[i] = static_cast<std::uint32_t>(kernels_.size());
      kernels_.push_back(std::move(kernel));
    }
  }

  void acquire(std::uint32_t k) {
    if (kernels_[k].uses++ == 0) add(k);
  }
  void release(std::uint32_t k) {
    if (--kernels_[k].uses == 0 && kernels_[k].is_counted) remove(k);
  }

  void add(std::uint32_t k) {
    expand(kernels_[k]);
    kernels_[k].is_counted = true;
    seconds_ += kernels_[k].seconds;
    for (const std::uint32_t n : kernels_[k].nodes) users_[n].push_back(k);
    // Kernels do not move in memory: all were made before the first was counted.
    for (const Leaf& leaf : kernels_[k].leaves) read(leaf.value);
  }

  void remove(std::uint32_t k) {
    kernels_[k].is_counted = false;
    seconds_ -= kernels_[k].seconds;
    for (const std::uint32_t n : kernels_[k].nodes) {
      users_[n].erase(std::ranges::find(users_[n], k));
    }
    for (const Leaf& leaf : kernels_[k].leaves) unread(leaf.value);
  }

  void read(ValueId v) {
    if (const std::uint32_t writer = writer_of(v); writer != kNone) {
      acquire(writer);
    } else if (readers_[v.index]++ == 0) {
      seconds_ += keeping(v);
      bytes_ += kept_bytes(v);
    }
  }
  // Sides have not changed since it was read.
  void unread(ValueId v) {
    if (const std::uint32_t writer = writer_of(v); writer != kNone) {
      release(writer);
    } else if (--readers_[v.index] == 0) {
      seconds_ -= keeping(v);
      bytes_ -= kept_bytes(v);
    }
  }

  // The kernel that computes a value again and writes it; none if it is kept.
  std::uint32_t writer_of(ValueId v) const {
    const std::int32_t from = problem_.producer[v.index];
    if (from < 0 || !again_[static_cast<std::size_t>(from)]) return kNone;
    return kernel_of_[static_cast<std::size_t>(from)];
  }

  std::int64_t kept_bytes(ValueId v) const {
    return problem_.roles.lives_anyway(v) ? 0 : bytes_of(joint_, v);
  }

  double keeping(ValueId v) const {
    const std::int32_t from = problem_.producer[v.index];
    if (from < 0) return is_for_forward_[v.index] ? kForbidden : 0;
    const auto node = static_cast<std::size_t>(from);
    if (!problem_.roles.may_keep(v) || problem_.roles.is_last_resort(v)) return kForbidden;
    double times = problem_.roles.is_at_risk(v) ? Roles::kPriceOfRisk : 0, extra = 0;
    if (!problem_.roles.in_forward(node)) {
      if (!problem_.work[node] || !problem_.roles.has_ready_operands(node)) return kForbidden;
      extra = problem_.work[node]->operations / problem_.machine.operations_per_second;
    }
    if (!groups_.is_stored[v.index]) times += 1;
    if (!problem_.roles.lives_anyway(v)) {
      times += kPriceOfMemory + (problem_.machine.clears_memory ? 1 : 0);
    }
    return problem_.seconds_of(v) * times + extra;
  }

  // Finds what a kernel reads, and what it takes.
  void expand(Kernel& kernel) {
    kernel.leaves.clear();
    kernel.nodes.clear();
    kernel.seconds = 0;
    ++epoch_;
    std::vector<Leaf> open;
    for (const ValueId v : kernel.roots) open.push_back({v, problem_.seconds_of(v)});
    while (!open.empty()) {
      const Leaf at = open.back();
      open.pop_back();
      if (stamp_[at.value.index] == epoch_ || problem_.roles.is_literal(at.value)) continue;
      stamp_[at.value.index] = epoch_;
      const std::int32_t from = problem_.producer[at.value.index];
      const auto node = static_cast<std::size_t>(from);
      const bool is_new = from >= 0 && node_stamp_[node] != epoch_;
      if (is_new) {
        node_stamp_[node] = epoch_;
        kernel.nodes.push_back(static_cast<std::uint32_t>(from));
      }
      if (from < 0 || !again_[node] || kernel_of_[node] != kNone) {
        kernel.leaves.push_back(at);
        kernel.seconds += at.seconds;
      } else if (is_new) {
        compute(node, at, kernel, open);
      }
    }
    if (kernel.writes == ~std::size_t{0}) return;
    if (const auto& work = problem_.work[kernel.writes]) {
      kernel.seconds += work->operations / problem_.machine.operations_per_second;
    }
    for (const ValueId v : joint_.nodes[kernel.writes].results) {
      kernel.seconds += problem_.seconds_of(v);
    }
  }

  // A node inside of a kernel.
  void compute(std::size_t i, const Leaf& at, Kernel& kernel, std::vector<Leaf>& open) const {
    const Node& node = joint_.nodes[i];
    const bool is_view = has(node.op->traits, Trait::view);
    if (!is_view && problem_.work[i]) {
      kernel.seconds += problem_.work[i]->operations / problem_.machine.operations_per_second;
    }
    graph::for_each_operand(node, [&](ValueId v) {
      const double whole = problem_.seconds_of(v);
      open.push_back({v, is_view ? std::min(whole, at.seconds) : whole});
    });
  }

  const Problem& problem_;
  const graph::Graph& joint_;
  std::vector<bool> again_;
  Groups groups_;
  std::vector<Kernel> kernels_;
  std::vector<std::uint32_t> kernel_of_;  // by node: that writes its results again
  std::vector<std::vector<std::uint32_t>>
      users_;                           // by node: kernels whose cost its side is part of
  std::vector<std::uint32_t> readers_;  // by value: kernels that read it, kept
  std::vector<std::uint32_t> stamp_, node_stamp_;  // by value and by node: seen in this epoch
  std::vector<bool> is_for_forward_;               // by value: an input that may not be kept
  std::uint32_t epoch_ = 0;
  double seconds_ = 0;
  std::int64_t bytes_ = 0;
};

// Checkpointing has decided, or there is nothing to decide.
bool is_open(const Problem& problem, std::size_t i) {
  const Node& node = problem.joint.nodes[i];
  return problem.wanted[i] && node.keep == Keep::free && !has(node.op->traits, Trait::view) &&
         problem.roles.in_forward(i) && problem.may_repeat(i);
}

}  // namespace

Chosen refined(const Problem& problem, std::vector<bool> again) {
  const std::int64_t most_bytes = problem.most_bytes;
  Ledger ledger(problem, std::move(again));
  const std::size_t nodes = problem.joint.nodes.size();
  for (int round = 0; round < kMostRounds; ++round) {
    bool is_better = false;
    for (std::size_t i = nodes; i-- > 0;) {
      if (!is_open(problem, i)) continue;
      if (!ledger.is_used(i)) {
        // Costs nothing now: any kernel that reads it may recompute it from what is kept.
        ledger.set_unused(i, true);
        continue;
      }
      const double before = ledger.seconds();
      const std::int64_t bytes = ledger.bytes();
      ledger.toggle(i);
      const bool fits = ledger.bytes() <= std::max(most_bytes, bytes);
      if (fits && ledger.seconds() < before - kLeastGain) {
        is_better = true;
      } else {
        ledger.toggle(i);
      }
    }
    if (!is_better) break;
  }
  return {ledger.again(), ledger.seconds(), ledger.bytes() <= most_bytes};
}

}  // namespace inkle::partition
