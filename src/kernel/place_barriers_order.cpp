#include "kernel/place_barriers_order.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace inkle::kernel {
namespace {

Touch with(Touch t, sym::Substitution next) {
  for (Expr& e : t.indices) e = sym::substitute(e, next);
  for (Guard& g : t.guards) {
    g.expression = sym::substitute(g.expression, next);
    g.bound = sym::substitute(g.bound, next);
  }
  return t;
}

}  // namespace

TouchOrder::TouchOrder(const Kernel& kernel, Overlap& overlap, const SharedSymbols& shared)
    : kernel_(kernel),
      overlap_(overlap),
      shared_(shared),
      widest_(kernel.cluster() > 1 ? kClusterReach : kBlockReach) {}

Seen TouchOrder::number(Touch touch) {
  touches_.push_back(std::move(touch));
  return {static_cast<std::uint32_t>(touches_.size() - 1), 0};
}

Need TouchOrder::needed(const std::vector<Seen>& before, const std::vector<Seen>& after,
                        sym::Substitution next) {
  Need out;
  for (const Seen& a : after) {
    const Touch& then = touches_[a.touch];
    std::optional<Touch> moved;
    // The last ones first: they are the most likely to ask for a barrier.
    for (std::size_t i = before.size(); i-- > 0 && out.reach < widest_;) {
      const Seen& b = before[i];
      const Touch& first = touches_[b.touch];
      if (!may_meet(first, then)) continue;
      if (!next.empty() && !moved) moved = with(then, next);
      const Reach reach = needed(first, moved ? *moved : then, std::max(b.passed, a.passed));
      if (reach > out.reach) {
        out = {reach, first.kind == Touch::Kind::access ? first.memory : then.memory};
      }
    }
  }
  return out;
}

void TouchOrder::forget(Summary& summary) const {
  const auto is_over = [&](const Seen& t) { return t.passed >= widest_; };
  std::erase_if(summary.first, is_over);
  std::erase_if(summary.last, is_over);
}

bool TouchOrder::may_meet(const Touch& before, const Touch& after) const {
  if (before.kind != Touch::Kind::access || after.kind != Touch::Kind::access) {
    const bool is_released = after.kind == Touch::Kind::release &&
                             before.kind == Touch::Kind::access && is_for_others(before, true);
    const bool is_acquired = before.kind == Touch::Kind::acquire &&
                             after.kind == Touch::Kind::access && is_for_others(after, false);
    return is_released || is_acquired;
  }
  if (before.memory != after.memory || (!before.writes && !after.writes)) return false;
  if (before.is_strong && after.is_strong) return false;
  // What a kernel gives is written once, or by one thread, and so is what one store writes before
  // others read it: indices need not show it. So a thread that reads what the kernel gives in the
  // region where it writes that element is the one that writes it, in whichever iteration.
  const bool is_shared = kernel_.memories[before.memory].space == Space::shared;
  if (before.writes && after.writes) return is_shared && before.operation != after.operation;
  return is_shared || before.region != after.region || before.indices != after.indices;
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
