// The loops of a team's threads along a row: over all accesses of a row that is kept in
// registers, or over groups of accesses that are in flight together.
#pragma once

#include "schedule/expand_row_shape.h"

namespace inkle::schedule::expansion {

// A loop whose variable is a multiple of `divisor`.
[[nodiscard]] kernel::Loop multiples(sym::Context& context, Expr begin, Expr end, std::int64_t step,
                                     std::int64_t divisor);

class RowLoops {
 public:
  // What happens at one access, with the states before it and after it.
  using AtPlace = std::function<Values(const RowPlace& place, const Values& carried)>;

  RowLoops(BlockExpansion& x, const RowTeam& team, const RowShape& shape);

  Values kept(const Stage& stage, const Usage& usage, const Values& carried,
              const AtPlace& f) const;
  Values looped(const Stage& stage, const Values& carried, const AtPlace& f);

 private:
  using Loads = std::vector<LoadedAhead>;
  Values batched(const Stage& stage, const Loads& loads, const RowPlace& place,
                 const Values& carried, const AtPlace& f) const;
  Values ragged(const Stage& stage, const Loads& loads, const RowPlace& place,
                const Values& carried, const AtPlace& f) const;
  Values whole_accesses(const Stage& stage, const Loads& loads, const RowPlace& place,
                        const RowShape::Rest& row, Values states, const AtPlace& f) const;
  Values ragged_end(const Stage& stage, const RowPlace& place, const RowShape::Rest& row,
                    const Values& states, const AtPlace& f) const;
  Values whole_or_part(const Stage& stage, const RowPlace& place, const Values& carried,
                       const AtPlace& f) const;
  Values in_flight(const Stage& stage, const Loads& loads, Expr first, Expr end,
                   const RowPlace& place, const Values& carried, const AtPlace& f) const;
  [[nodiscard]] Loads find_loads(const Stage& stage) const;

  BlockExpansion& x_;
  kernel::Builder& b_;
  const BlockSchedule& blocks_;
  const RowTeam& team_;
  const RowShape& shape_;
  bool reads_twice_ = false;  // rows are read from memory in more than one pass
};

}  // namespace inkle::schedule::expansion
