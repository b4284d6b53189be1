// Mbarriers of the stages of a pipeline in shared memory, which are filled by bulk copies and freed
// by their readers; the numbers of stages continue from tile to tile.
#pragma once

#include <string_view>

#include "kernel/builder.h"

namespace inkle::templates {

using sym::Expr;

// Mbarriers in shared memory, so many.
[[nodiscard]] kernel::MemoryId declare_barriers(kernel::Builder& builder, std::string_view name,
                                                std::int64_t count);
void init_barrier(kernel::Builder& builder, kernel::MemoryId barrier, Expr at,
                  std::int64_t arrivals);
// With `bytes`, of copies that are to arrive, too.
void arrive(kernel::Builder& builder, kernel::MemoryId barrier, Expr at, std::int64_t bytes = 0);
// Until the phase of this number is complete; -1 is, from the start. Of a thread that does not wait
// for each phase, `skips`.
void wait_for_phase(kernel::Builder& builder, kernel::MemoryId barrier, Expr at, Expr phase,
                    bool skips = false);

class StageBarriers {
 public:
  StageBarriers(kernel::Builder& builder, std::int64_t stages, bool skips)
      : b_(builder), stages_(stages), skips_(skips) {}

  void declare() {
    full_ = declare_barriers(b_, "full", stages_);
    empty_ = declare_barriers(b_, "empty", stages_);
  }
  [[nodiscard]] kernel::MemoryId full() const { return full_; }
  [[nodiscard]] Expr slot(Expr stage_number) const { return sym::mod(stage_number, stages_); }
  void init(Expr slot, std::int64_t readers) {
    init_barrier(b_, full_, slot, 1);
    init_barrier(b_, empty_, slot, readers);
  }
  void fill(Expr stage_number, std::int64_t bytes) { arrive(b_, full_, slot(stage_number), bytes); }
  void release(Expr stage_number) { arrive(b_, empty_, slot(stage_number)); }
  void wait_filled(Expr stage_number) {
    wait_for_phase(b_, full_, slot(stage_number), sym::floordiv(stage_number, stages_), skips_);
  }
  void wait_free(Expr stage_number) {
    wait_for_phase(b_, empty_, slot(stage_number), sym::floordiv(stage_number, stages_) - 1);
  }

 private:
  kernel::Builder& b_;
  std::int64_t stages_;
  bool skips_;  // the reader does not wait for each phase
  kernel::MemoryId full_ = 0, empty_ = 0;
};

}  // namespace inkle::templates
