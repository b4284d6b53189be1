#include "kernel/place_barriers_order.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace inkle::kernel {
namespace {

Touch with(Touch t, sym::Substitution next, Lists& lists) {
  const std::span<Expr> indices = lists.copy(t.indices);
  for (Expr& e : indices) e = sym::substitute(e, next);
  const std::span<Guard> guards = lists.copy(t.guards);
  for (Guard& g : guards) {
    g.expression = sym::substitute(g.expression, next);
    g.bound = sym::substitute(g.bound, next);
  }
  t.indices = indices;
  t.guards = guards;
  return t;
}

// Loads of elements that the thread itself stores in the same iteration: whoever comes to the load
// comes to a store at the same indices.
class OwnLoads {
 public:
  // Of these memories, by memory.
  OwnLoads(const Kernel& kernel, const std::vector<bool>& memories)
      : kernel_(kernel), memories_(memories) {
    if (std::ranges::find(memories, true) != memories.end()) look_at(kernel.body, kernel.body);
  }

  [[nodiscard]] std::vector<bool> by_operation() const {
    std::vector<bool> out(kernel_.operations.size(), false);
    for (const AccessSite& load : loads_) {
      out[load.operation] = std::ranges::any_of(
          stores_, [&](const AccessSite& store) { return covers(store, load); });
    }
    return out;
  }

 private:
  using Condition = std::pair<ValueId, bool>;  // and whether it holds
  struct AccessSite {
    OperationId operation;
    const Access* access;
    RegionId iteration;                 // the closest region around that is no branch's
    std::vector<Condition> conditions;  // inside of it
  };

  static bool covers(const AccessSite& store, const AccessSite& load) {
    const auto holds = [&](const Condition& c) {
      return std::ranges::find(load.conditions, c) != load.conditions.end();
    };
    return store.access->memory == load.access->memory && store.iteration == load.iteration &&
           store.access->indices == load.access->indices &&
           std::ranges::all_of(store.conditions, holds);
  }

  void look_at(RegionId id, RegionId iteration) {
    for (const OperationId o : kernel_.regions[id].operations) {
      const Operation& op = kernel_[o];
      if ((op.op == Op::load || op.op == Op::store) && memories_[access_of(op)->memory]) {
        auto& sites = op.op == Op::load ? loads_ : stores_;
        sites.push_back({o, access_of(op), iteration, conditions_});
      }
      for (std::size_t i = 0; i < op.regions.size(); ++i) {
        if (op.op != Op::branch) {
          std::vector<Condition> around = std::exchange(conditions_, {});
          look_at(op.regions[i], op.regions[i]);
          conditions_ = std::move(around);
          continue;
        }
        conditions_.emplace_back(op.operands[0], i == 0);
        look_at(op.regions[i], iteration);
        conditions_.pop_back();
      }
    }
  }

  const Kernel& kernel_;
  const std::vector<bool>& memories_;
  std::vector<AccessSite> loads_, stores_;
  std::vector<Condition> conditions_;  // where the walk is
};

}  // namespace

TouchOrder::TouchOrder(const Kernel& kernel, Overlap& overlap, const SharedSymbols& shared,
                       const std::vector<bool>& passed_on)
    : kernel_(kernel),
      overlap_(overlap),
      shared_(shared),
      widest_(kernel.cluster() > 1 ? kClusterReach : kBlockReach),
      is_own_(OwnLoads(kernel, passed_on).by_operation()) {}

Seen TouchOrder::keep(const Touch& touch) { return {&touches_.emplace_back(touch), 0}; }

Need TouchOrder::needed(const std::vector<Seen>& before, const std::vector<Seen>& after,
                        sym::Substitution next) {
  Need out;
  for (const Seen& a : after) {
    const Touch& then = *a.touch;
    std::optional<Touch> moved;
    // The last ones first: they are the most likely to ask for a barrier.
    for (std::size_t i = before.size(); i-- > 0 && out.reach < widest_;) {
      const Seen& b = before[i];
      const Touch& first = *b.touch;
      const bool are_accesses = first.is_access() && then.is_access();
      if (are_accesses && (first.memory != then.memory || !(first.writes || then.writes))) continue;
      if (!may_meet(first, then)) continue;
      if (!next.empty() && !moved) moved = with(then, next, overlap_.lists());
      const Reach reach = needed(first, moved ? *moved : then, std::max(b.passed, a.passed));
      if (reach > out.reach) {
        out = {reach, first.is_access() ? first.memory : then.memory};
      }
    }
  }
  return out;
}

void TouchOrder::forget(Summary& summary) const {
  if (summary.passed < widest_) return;
  const auto is_over = [&](const Seen& t) { return t.passed >= widest_; };
  std::erase_if(summary.first, is_over);
  std::erase_if(summary.last, is_over);
}

bool TouchOrder::may_meet(const Touch& before, const Touch& after) const {
  if (!before.is_access() || !after.is_access()) {
    const bool is_released =
        after.kind == Touch::Kind::release && before.is_access() && is_for_others(before, true);
    const bool is_acquired =
        before.kind == Touch::Kind::acquire && after.is_access() && is_for_others(after, false);
    return is_released || is_acquired;
  }
  if (before.is_strong && after.is_strong) return false;
  // What a kernel gives is written once, or by one thread, and so is what one store writes before
  // others read it: indices need not show it. So a thread that reads an element of what the kernel
  // gives, and stores it, is the only one that stores it, anywhere.
  const bool is_shared = kernel_.memories[before.memory].space == Space::shared;
  if (before.writes && after.writes) return is_shared && before.operation != after.operation;
  return is_shared || !is_own_[before.writes ? after.operation : before.operation];
}

Reach TouchOrder::needed(const Touch& before, const Touch& after, Reach passed) {
  const bool is_remote = before.is_remote || after.is_remote;
  if (passed >= (is_remote ? kClusterReach : kBlockReach)) return 0;
  Reach reach = 0;
  if (!is_remote) {
    reach = overlap_.reach(before, after, shared_);
  } else if (!overlap_.is_disjoint(before, after, shared_)) {
    reach = kClusterReach;
  }
  return reach <= passed ? 0 : reach;
}

bool TouchOrder::is_for_others(const Touch& touch, bool writes) const {
  const Space space = kernel_.memories[touch.memory].space;
  return touch.writes == writes && (space == Space::global || space == Space::workspace);
}

}  // namespace inkle::kernel
