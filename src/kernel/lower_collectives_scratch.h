// The scratch memory of collectives while they are lowered: where the states of participants lie in
// it. For lower_collectives*.cpp only.
#pragma once

#include <span>
#include <unordered_set>
#include <vector>

#include "kernel/builder.h"

namespace inkle::kernel {

class CollectiveScratch {
 public:
  explicit CollectiveScratch(Builder& builder) : builder_(builder) {}

  // The enclosing loops, whose iterations alternate between the halves of scratch.
  void enter(const Loop& loop) { loops_.push_back(loop); }
  void leave() { loops_.pop_back(); }

  ValueId load(MemoryId scratch, Expr place, ValueId rank = kNone);
  void store(MemoryId scratch, Expr place, ValueId value);
  // Interleaves two states, so that a compiler can merge their accesses into one.
  void interleave(std::span<const MemoryId> scratch);
  // A reduction of columns has been read from these.
  void mark_read(std::span<const MemoryId> scratch);
  [[nodiscard]] bool was_read(std::span<const MemoryId> scratch) const;

 private:
  // Which half is this iteration's: its number among those of the loops around.
  [[nodiscard]] Expr parity() const;
  [[nodiscard]] Access access(MemoryId scratch, Expr place) const;

  Builder& builder_;
  std::vector<Loop> loops_;  // outermost first
  std::unordered_set<MemoryId> read_;
  std::unordered_set<MemoryId> interleaved_;  // places count by two
};

}  // namespace inkle::kernel
