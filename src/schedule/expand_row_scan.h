// Scans of rows: running values along the row, in steps of one team.
#pragma once

#include "schedule/expand_row_bodies.h"

namespace inkle::schedule::expansion {

// Scans over the threads of a team: each returns the exclusive prefix of the thread's x, `carry`
// included, and `carry` combined with the x of all threads.
class TeamScan {
 public:
  struct Scanned {
    ValueId before, carry;
  };
  TeamScan(BlockExpansion& x, const RowTeam& team, GpuReducer& reducer);

  [[nodiscard]] ValueId join(ValueId a, ValueId b) const;
  // Of a part of a warp, or all of it.
  [[nodiscard]] Scanned warp(ValueId x, ValueId carry, Expr lane, std::int32_t width) const;
  // `slots`: shared memory for two rounds of a team of several warps, of which `side` is one.
  [[nodiscard]] Scanned team(ValueId x, ValueId carry, Expr side, kernel::MemoryId slots) const;
  // Of warps that have x each: from `none` on, through shared memory.
  [[nodiscard]] Scanned warps(ValueId x, ValueId none) const;

 private:
  [[nodiscard]] ValueId shuffle(kernel::ShuffleKind kind, ValueId value, std::int32_t by) const;
  [[nodiscard]] ValueId scan_lanes(ValueId x, Expr lane, std::int32_t count) const;

  kernel::Builder& b_;
  const BlockSchedule& blocks_;
  const RowTeam::Threads& at_;
  GpuReducer& reducer_;
};

class RowScan {
 public:
  RowScan(BlockExpansion& x, const RowTeam& team, const RowShape& shape, RowBodies& bodies,
          const Stage& stage, std::size_t pass);
  void run();

  // --- Parts of scans of chunks, too
  [[nodiscard]] GpuReducer& reducer() { return reducer_; }
  // The elements of an access, or the identity where there are none.
  void put_or_none(const RowPlace& place, const Elements& to, ValueId none);
  // Scans the lanes of a thread in place; returns the last running value.
  ValueId run_lanes(const Elements& own);
  // Stores the running values: the thread's own, combined with the prefix before them.
  void store(const RowPlace& place, const Elements& own, ValueId before);

 private:
  BlockExpansion& x_;
  kernel::Builder& b_;
  const RowTeam& team_;
  const RowShape& shape_;
  RowBodies& bodies_;
  const Stage& stage_;
  std::size_t pass_;
  GpuReducer reducer_;
};

}  // namespace inkle::schedule::expansion
