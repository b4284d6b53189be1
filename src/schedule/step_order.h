// In which order the steps of a program may run, and what memory an order needs: for passes that
// run steps together or earlier.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "schedule/scheduled.h"

namespace inkle::schedule {

// By step: the steps that depend on it, and how many it depends on.
struct Dependencies {
  std::vector<std::vector<std::size_t>> after;
  std::vector<std::size_t> waiting;
};
// Two steps are ordered where one of them writes memory that the other reads or writes. All
// others keep their place around eager calls, whose side effects are unknown.
[[nodiscard]] Dependencies dependencies_of(std::span<const Step> steps,
                                           const loop::Program& program);

// Steps that are one step each, in order.
using StepGroups = std::vector<std::vector<std::size_t>>;

// Bytes of a buffer by its sizes' hints; without a hint a very large number.
[[nodiscard]] std::int64_t bytes_of(const loop::Program& program, loop::BufferId buffer);
// Memory of the plan's own, in nothing else.
[[nodiscard]] bool is_working_memory(const loop::Program& program, loop::BufferId buffer);
// Peak bytes of working memory, without what is kept from call to call.
class PeakMemory {
 public:
  PeakMemory(std::span<const Step> steps, const loop::Program& program);
  [[nodiscard]] std::int64_t of(const StepGroups& groups) const;

 private:
  std::vector<std::vector<loop::BufferId>> touched_;  // by step: what counts, each once
  std::vector<std::int64_t> bytes_;                   // by buffer
};

}  // namespace inkle::schedule
