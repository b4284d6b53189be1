// What a row keeps in a thread's registers from one pass over it to the next.
#pragma once

#include <optional>

#include "schedule/expand_row_loops.h"
#include "schedule/keep.h"

namespace inkle::schedule::expansion {

class KeptRow {
 public:
  KeptRow(BlockExpansion& x, const RowShape& shape);

  [[nodiscard]] const std::vector<RowPass>& passes() const { return passes_; }
  [[nodiscard]] const PreparedStage& stage_of(std::size_t pass) const;
  // Values that this pass computes and later passes reuse.
  [[nodiscard]] std::vector<loop::Val> kept_by(std::size_t pass) const;
  // is_known: an earlier pass has computed it. is_given: that, or this pass has prefetched it.
  [[nodiscard]] bool is_known(std::size_t pass, loop::Val v) const;
  [[nodiscard]] bool is_given(std::size_t pass, loop::Val v) const;

  // Loads that this pass keeps, all of them in flight before the first is used.
  void prefetch(const Stage& stage, std::size_t pass, const RowLoops& loops);
  // Registers of what this pass keeps, which the caller loads ahead.
  [[nodiscard]] std::optional<kernel::MemoryId> fetch(std::size_t pass, loop::Val v);

  // In a vector region: defines kept values in the body of a pass; saves those that it computes.
  void provide(std::size_t pass, const RowPlace& place, Expr lane, BodyExpander& body) const;
  void capture(std::size_t pass, const RowPlace& place, Expr lane, BodyExpander& body) const;

 private:
  struct Kept {
    KeptValue of;
    kernel::MemoryId registers;
    bool fetched = false;  // loaded ahead of its pass
  };
  void plan();
  [[nodiscard]] std::int64_t registers_of(const KeepPlan& plan) const;

  BlockExpansion& x_;
  const RowShape& shape_;
  std::vector<RowPass> passes_;
  std::vector<Kept> kept_;
  std::vector<std::vector<KeepPlan::Use>> known_;  // by pass
};

}  // namespace inkle::schedule::expansion
