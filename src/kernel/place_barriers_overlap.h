// Which threads may touch one element by two accesses: for place_barriers alone.
#pragma once

#include <set>
#include <utility>
#include <vector>

#include "kernel/collective.h"
#include "kernel/kernel.h"

namespace inkle::kernel {

// How far a barrier reaches: 0, none; k, parts of a warp of 2^k lanes.
using Reach = int;
inline constexpr Reach kWarpReach = 5;
inline constexpr Reach kBlockReach = 6;
inline constexpr Reach kClusterReach = 7;

// What holds where an access is made: expression == bound, or expression < bound.
struct Guard {
  Expr expression;
  bool is_equality = true;
  Expr bound;
};

// What a branch's condition says of indices.
void add_guards(const Kernel& kernel, ValueId condition, std::vector<Guard>& guards);

// An access that another thread's may have to wait for, or the other way round; or where one thread
// releases what its block has written, or acquires for its block what others have.
struct Touch {
  enum class Kind : std::uint8_t { access, release, acquire };
  Kind kind = Kind::access;
  OperationId operation = kNone;
  MemoryId memory = kNone;
  bool writes = false;
  bool is_strong = false;  // those do not race with each other
  bool is_remote = false;
  std::vector<Expr> indices;   // none: anywhere
  std::vector<Expr> expanded;  // with loops that begin at a thread's own number as begin + step * k
  std::vector<Guard> guards;
  Reach passed = 0;  // the barrier that surely stands between it and where it is seen
};

class Overlap {
 public:
  Overlap(const Kernel& kernel, sym::Context& context)
      : context_(context), threads_(axes_of(kernel, AxisKind::thread)) {}

  // Symbols with one value for all threads of the block, at both accesses.
  using Shared = std::set<std::uint32_t>;

  // The least reach that has all threads of a block that may touch one element by `a` and by `b`.
  [[nodiscard]] Reach reach(const Touch& a, const Touch& b, const Shared& shared) const;
  // Whether guards leave one thread of the block.
  [[nodiscard]] bool is_one_thread(const Touch& touch) const;
  // Whether no element is touched by both.
  [[nodiscard]] bool is_disjoint(const Touch& a, const Touch& b, const Shared& shared) const;

 private:
  Expr renamed(Expr e, const Touch& touch, const Shared& shared,
               std::vector<std::pair<Expr, Expr>>& names) const;
  sym::SymbolInfo facts(Expr symbol, const Touch& touch, const Shared& shared) const;
  bool is_determined(const ThreadAxis& axis, const Touch& a, const Touch& b) const;

  sym::Context& context_;
  std::vector<ThreadAxis> threads_;
};

}  // namespace inkle::kernel
