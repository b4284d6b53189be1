// The expansion of rows: a team of threads runs along the inner loops of one outer iteration. Parts
// of it, from the launch on:
//
//   expand_row_team        the threads that share a row; reduction across them
//   expand_row_shape       where accesses lie in a row, and rows in memory
//   expand_row_loops       loops along a row
//   expand_row_keep        what stays in registers from pass to pass
//   expand_row_bodies      the body of a stage at an access
//   expand_row_reduce      reductions
//   expand_row_scan        scans; expand_row_chunks: of rows that blocks share
//   expand_row_sequential  sequential rows; expand_row_staged: prefetch of the next row
#pragma once

#include "schedule/expand_row_reduce.h"
#include "schedule/expand_row_scan.h"

namespace inkle::schedule::expansion {

// The stages of one row.
class RowStages {
 public:
  // `staged`: of sequential rows; null elsewhere.
  RowStages(BlockExpansion& x, const RowTeam& team, const RowShape& shape, RowLoops& loops,
            KeptRow& keep, StagedRows* staged);

  void pass(std::size_t number);
  void phase(Phase phase);

 private:
  void pointwise(const Stage& stage, std::size_t pass);
  void once(const Stage& stage);

  BlockExpansion& x_;
  const RowTeam& team_;
  const RowShape& shape_;
  KeptRow& keep_;
  RowBodies bodies_;
  RowReductions reductions_;
};

// Scratch of each row: in shared memory, or a thread's own where one thread has the row.
void declare_row_scratch(BlockExpansion& x, const RowTeam& team);
// Accesses of a thread to scratch that lives through sequential rows.
[[nodiscard]] std::int64_t sums_of(const BlockExpansion& x, const Scratch& scratch);

void expand_row_chunks(BlockExpansion& x);
void expand_sequential_rows(BlockExpansion& x);

}  // namespace inkle::schedule::expansion
