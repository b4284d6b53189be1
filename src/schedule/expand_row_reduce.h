// Reductions of rows: each thread accumulates its elements in order, then the team combines them.
#pragma once

#include "schedule/expand_row_bodies.h"

namespace inkle::schedule::expansion {

class RowReductions {
 public:
  RowReductions(BlockExpansion& x, const RowTeam& team, const RowShape& shape, RowBodies& bodies);

  // `part`: of moments of a kept row, which take two passes.
  void reduce(const PreparedStage& prepared, std::size_t pass, int part);

 private:
  void single(const PreparedStage& prepared);
  void simple(const PreparedStage& prepared, std::size_t pass);
  void best(const PreparedStage& prepared, std::size_t pass);
  void search(const PreparedStage& prepared, std::size_t pass);
  void moments(const PreparedStage& prepared, std::size_t pass);
  void moments_kept(const PreparedStage& prepared, std::size_t pass, bool is_second);
  void exponentials(const PreparedStage& prepared, std::size_t pass);
  void sums(const PreparedStage& prepared, std::size_t pass);

  [[nodiscard]] Expr constant(std::int64_t value) const { return x_.context().constant(value); }
  [[nodiscard]] Elements elements(DType dtype, std::int64_t accesses = 1) const;
  // The lanes that are in the row, one after the other.
  Values in_row(const Stage& stage, const RowPlace& place, const Elements& own,
                const Values& carried, const Elements::OfLane& f) const;
  [[nodiscard]] ValueId first_of(const Elements& own, ValueId value, ValueId none,
                                 const std::function<ValueId(Expr lane)>& position) const;
  void define(std::uint32_t row, ValueId value);
  void define(const PreparedStage& prepared, const Values& results);

  BlockExpansion& x_;
  kernel::Builder& b_;
  const BlockSchedule& blocks_;
  const RowTeam& team_;
  const RowShape& shape_;
  RowBodies& bodies_;
};

}  // namespace inkle::schedule::expansion
