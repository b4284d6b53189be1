// Which accesses of a part of a kernel must have a barrier between them: for place_barriers alone.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "kernel/place_barriers_overlap.h"

namespace inkle::kernel {

// A touch as it is seen from elsewhere.
struct Seen {
  const Touch* touch = nullptr;
  Reach passed = 0;  // the barrier that surely stands between it and where it is seen
};

// Accesses of a part of the kernel, as seen from outside.
struct Summary {
  std::vector<Seen> first;  // `passed`: barriers since the part's begin
  std::vector<Seen> last;   // `passed`: barriers up to the part's end
  Reach passed = 0;         // the barrier that every way through the part passes

  [[nodiscard]] bool is_empty() const { return first.empty() && last.empty() && passed == 0; }
  void clear() {
    first.clear();
    last.clear();
    passed = 0;
  }
};

// The barrier that must stand between accesses, and the memory that most asks for it.
struct Need {
  Reach reach = 0;
  MemoryId memory = kNone;
};

// All touches, and which barriers must stand between them.
class TouchOrder {
 public:
  // `passed_on`, by memory: global memory that the kernel both loads and stores.
  TouchOrder(const Kernel& kernel, Overlap& overlap, const SharedSymbols& shared,
             const std::vector<bool>& passed_on);

  Seen keep(const Touch& touch);
  // The barrier between some accesses and those that come then, with some symbol being another.
  [[nodiscard]] Need needed(const std::vector<Seen>& before, const std::vector<Seen>& after,
                            sym::Substitution next = {});
  // Removes accesses that a barrier of the widest scope has passed: they need no other.
  void forget(Summary& summary) const;

 private:
  // Whether one of the two may have to wait for the other, whatever their indices are; two accesses
  // are of one memory, which one of them writes.
  [[nodiscard]] bool may_meet(const Touch& before, const Touch& after) const;
  [[nodiscard]] Reach needed(const Touch& before, const Touch& after, Reach passed);
  // An access of global memory that other blocks may read, or have written.
  [[nodiscard]] bool is_for_others(const Touch& touch, bool writes) const;

  const Kernel& kernel_;
  Overlap& overlap_;
  const SharedSymbols& shared_;
  Reach widest_;
  std::vector<bool> is_own_;  // by operation: a load of what its thread stores
  std::deque<Touch> touches_;
};

}  // namespace inkle::kernel
