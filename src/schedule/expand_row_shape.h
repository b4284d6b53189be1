// Where the accesses of a team's threads lie in a row, and which lanes of them are in it.
#pragma once

#include "schedule/expand_row_team.h"

namespace inkle::schedule::expansion {

// A load ahead of its use: a thread's accesses in registers.
struct LoadedAhead {
  loop::Val value;
  kernel::MemoryId registers;
};

// One access of a thread in a row.
struct RowPlace {
  Expr base;             // the inner variable at lane 0
  bool part = false;     // lanes may lie outside of the row: each is masked
  bool chooses = false;  // of a part: an unmasked access is taken where all lanes are in the row
  bool skewed = false;
  Expr number;  // of the access among those of the thread, where the row is kept
  Expr flight;  // of the access among those in flight, which have loaded this
  const std::vector<LoadedAhead>* loaded = nullptr;
  Usage usage;
};

// Rows that are no whole number of accesses start anywhere in memory. Their accesses start up to
// lanes - 1 elements before them, where memory is aligned: at -skew of the inner variable.
class RowShape {
 public:
  RowShape(BlockExpansion& x, const RowTeam& team);

  // The thread's first element, unskewed.
  [[nodiscard]] Expr first() const { return position_ * std::int64_t{x_.blocks.lanes}; }
  // Elements that all threads take in an access each.
  [[nodiscard]] std::int64_t step() const { return step_; }
  [[nodiscard]] Expr skew() const { return skew_; }
  // Of a skewed row: the inner variable at the aligned address.
  [[nodiscard]] Expr shift() const { return aligned_ - start_; }
  [[nodiscard]] bool is_skewed(const Stage& stage) const;
  [[nodiscard]] bool is_ragged(const Stage& stage) const;
  // Accesses of a thread in a kept row.
  [[nodiscard]] std::int64_t accesses_of(const Stage& stage) const;

  // What comes after the elements before a row's first whole access.
  struct Rest {
    Expr head;   // the number of those elements
    Expr shift;  // of the inner variable against a multiple of the lanes
  };
  [[nodiscard]] Rest after_skew() const;

  // Whether a lane is in the row; whether all lanes are.
  [[nodiscard]] ValueId active(const Stage& stage, const RowPlace& place, Expr lane) const;
  [[nodiscard]] ValueId whole(const Stage& stage, const RowPlace& place) const;

  // Loads that are ahead of their use, into their registers of this number.
  void load(const Stage& stage, const RowPlace& place, Expr number,
            const std::vector<LoadedAhead>& loads) const;

  // Lanes that one access of the machine loads; 0 where they are not neighbours.
  [[nodiscard]] std::int64_t packed_lanes(const Stage& stage, loop::Val load) const;
  // An unconditional load whose index depends on no other value, of contiguous elements that take
  // one access, or few.
  [[nodiscard]] bool is_packed(const Stage& stage, loop::Val load) const;

 private:
  void find_skew();

  BlockExpansion& x_;
  kernel::Builder& b_;
  Expr position_;  // the thread's position in the team in one symbol, of which less is computed
  std::int64_t step_;
  Expr start_;  // the offset in memory, of the loops of this extent
  Expr start_extent_;
  Expr skew_;  // start - aligned
  Expr aligned_;
};

// An unconditional load whose address depends on no other value.
[[nodiscard]] bool is_direct(const BlockExpansion& x, const Stage& stage,
                             const loop::Instruction& load);

// value + more, as the bound of a range.
[[nodiscard]] std::int64_t above(std::int64_t value, std::int64_t more);

}  // namespace inkle::schedule::expansion
