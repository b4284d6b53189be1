// Scans of rows: running values, as the team goes along the row.
#pragma once

#include "schedule/expand_row_bodies.h"

namespace inkle::schedule::expansion {

// Scans over the threads of a team: each gives what comes before the thread's x, `carry` included,
// and `carry` with what all threads have.
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
  // The elements of an access, or what changes nothing where there are none.
  void put_or_none(const RowPlace& place, const Elements& to, ValueId none);
  // Each lane becomes the running value of the thread; the last one.
  ValueId run_lanes(const Elements& own);
  // Stores the running values: those of the thread after what comes before them.
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
