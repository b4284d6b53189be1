// The loops of one stage on a CPU: its lanes and copies, the chunks of its long chains of terms.
#pragma once

#include "schedule/expand_parts.h"

namespace inkle::schedule::expansion {

class StageLoops {
 public:
  // What happens for the copies of a group of lanes, with the states before it and after it.
  using Point = std::function<Values(BodyExpander& body, const Lanes& group, int first_copy,
                                     const Values& carried)>;

  // `columns`: the lanes of the last outer loop, or null.
  StageLoops(Expansion& expansion, const Stage& stage, const Lanes* columns);
  StageLoops(const StageLoops&) = delete;
  StageLoops& operator=(const StageLoops&) = delete;

  // Whether lanes are columns: there are results for each.
  [[nodiscard]] bool has_columns() const { return columns_ != nullptr; }
  [[nodiscard]] const Lanes& shape() const { return shape_; }
  [[nodiscard]] bool may_be_empty() const { return may_be_empty_; }
  // Chains of terms are long enough for chunks, of so many steps; or so short that lanes need not
  // be wider.
  [[nodiscard]] bool is_long() const { return is_long_; }
  [[nodiscard]] bool is_short() const { return is_short_; }
  [[nodiscard]] std::int64_t chunk_steps() const { return chunk_steps_; }

  // The lanes of a stage that has its own; `run` may yield only values uniform across lanes.
  Values in_lanes(const std::function<Values()>& run);
  // `run` unless some loop is empty, else `otherwise`.
  Values guarded(const Values& otherwise, const std::function<Values()>& run);
  // All loops, with accumulators of their own for each chunk where there are chunks.
  Values nest(const Values& carried, const Chunks* chunks, const Point& point);
  // The point at the first element of columns.
  Values first(const Point& point);

 private:
  // The order of the terms is fixed by the order of the loops alone.
  [[nodiscard]] bool is_fixed() const { return stage_.association != Association::free; }
  void choose_shape();
  [[nodiscard]] std::int64_t steps(std::size_t level, bool most) const;
  void find_chunks();
  Values at_point(const Lanes& group, int first_copy, const Values& carried, const Point& point);
  Values nest(std::size_t level, const Values& carried, const Chunks* chunks, const Point& point);

  Expansion& expansion_;
  kernel::Builder& b_;
  const Stage& stage_;
  const Lanes* columns_;
  Lanes one_column_;
  bool may_be_empty_ = false;
  Lanes shape_;
  bool is_long_ = false;
  bool is_short_ = false;
  std::size_t chunk_level_ = 0;  // loop that is split in chunks of so many steps
  std::int64_t chunk_steps_ = 1;
};

// The stage's reductions: its rows are defined.
void expand_reduction(Expansion& expansion, const Stage& stage, StageLoops& loops);

}  // namespace inkle::schedule::expansion
