// The bodies of stages along a row. The body at one access is a vector region; values to
// reduce are put into registers there and accumulated after it, lane after lane.
#pragma once

#include "schedule/expand_row_keep.h"

namespace inkle::schedule::expansion {

class StagedRows;

// Elements of a thread in registers: of one access, or of all of a kept row.
class Elements {
 public:
  using OfLane = std::function<Values(Expr lane, const Values& carried)>;

  Elements(kernel::Builder& b, DType dtype, std::int64_t lanes, std::int64_t accesses = 1);
  // Those of another access.
  [[nodiscard]] Elements at(Expr number) const;

  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] ValueId load(Expr lane) const;
  void store(Expr lane, ValueId x) const;
  // One of a vector region's lanes, or the one element.
  [[nodiscard]] ValueId load_lane(Expr lane) const;
  void store_lane(Expr lane, ValueId x) const;
  void fill(ValueId x) const;
  // Lanes from one on, one after the other.
  Values in_order(std::int64_t from, const Values& carried, const OfLane& f) const;

 private:
  kernel::Builder& b_;
  kernel::MemoryId memory_;
  DType dtype_;
  std::int64_t lanes_;
  Expr number_;  // of the access
};

class RowBodies {
 public:
  // Inside the vector region; `active`: whether the lane is in the row, of a partial access.
  using InLanes = std::function<Values(BodyExpander& body, Expr lane, ValueId active)>;
  struct Wanted {
    std::vector<std::uint32_t> yields;
    bool stores = false;
  };

  // `staged`: of sequential rows; null elsewhere.
  RowBodies(BlockExpansion& x, const RowShape& shape, RowLoops& loops, KeptRow& keep,
            StagedRows* staged);

  // `f` at each access of the row. `once`: loads of a kept row may bypass L1.
  Values along(const Stage& stage, std::size_t pass, const Values& carried,
               const RowLoops::AtPlace& f, bool once = false);
  // Emits the body at an access; returns the result of `f` where there is one lane.
  Values in_lanes(const Stage& stage, std::size_t pass, const RowPlace& place, const Wanted& wanted,
                  const InLanes& f);
  // Writes the first yield at an access to `to`; `otherwise`: the value of lanes outside the row.
  void put(const Stage& stage, std::size_t pass, const RowPlace& place, const Elements& to,
           ValueId otherwise = kernel::kNone);

 private:
  [[nodiscard]] bool is_given(const Stage& stage, std::size_t pass, const RowPlace& place,
                              loop::Val v) const;
  [[nodiscard]] std::vector<bool> needed(const Stage& stage, std::size_t pass,
                                         const RowPlace& place, const Wanted& wanted) const;

  BlockExpansion& x_;
  kernel::Builder& b_;
  const RowShape& shape_;
  RowLoops& loops_;
  KeptRow& keep_;
  StagedRows* staged_;
};

}  // namespace inkle::schedule::expansion
