// The threads that share a row, and the launch that gives each row its team:
//
//   team > 32    grid i0 in n, [cluster c in 4,] thread w in team/32, thread t in 32 { stages }
//   team <= 32   grid g in ceildiv(n, threads/team), thread r in threads/team, thread t in team
//                if less(index(g*(threads/team)+r), index(n)) { stages }
#pragma once

#include "schedule/expand_blocks.h"
#include "schedule/expand_states.h"

namespace inkle::schedule::expansion {

class RowTeam {
 public:
  struct Threads {
    Expr warp, lane;  // of a team of several warps
    Expr thread;      // the thread's position in the team
    Expr number;      // of a block's teams; null: there is one
    std::vector<kernel::AxisId> axes;
  };
  RowTeam(BlockExpansion& x, Threads threads);

  [[nodiscard]] const Threads& at() const { return at_; }
  // Threads of the team, over all blocks of its cluster.
  [[nodiscard]] std::int64_t members() const;
  [[nodiscard]] ValueId is_first_thread() const;
  [[nodiscard]] ValueId is_last_thread() const;

  // What the states of all threads make, for each of them: by halves, lanes, then warps, then the
  // blocks of the cluster one after the other.
  using Merge = std::function<Values(const Values& a, const Values& b)>;
  [[nodiscard]] Values join(const Values& states, const Merge& merge) const;
  [[nodiscard]] Values join(GpuReducer& reducer, const Values& states) const;

 private:
  [[nodiscard]] Values join_cluster(const Values& states, const Merge& merge) const;

  BlockExpansion& x_;
  kernel::Builder& b_;
  Threads at_;
};

// Runs `stages` for each row.
void launch_rows(BlockExpansion& x, const std::function<void(const RowTeam& team)>& stages);

}  // namespace inkle::schedule::expansion
