// The table of passes that turn loop nests into scheduled steps, in the order in which they run,
// and the runner: dump, time, verify, skip, stop after n, fail on purpose.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "schedule/epilogue.h"
#include "schedule/group.h"
#include "schedule/schedule.h"
#include "schedule/scheduled.h"

namespace inkle::schedule {

// What the passes work on. The program's nests are consumed by build_steps; steps exist after it.
struct Scheduling {
  const Options& options;
  ScheduledProgram scheduled;
  Associations associations;                 // of reductions, until build_steps
  ContractionSteps contractions;             // between build_contractions and build_steps
  std::vector<loop::BufferId> column_parts;  // results of sums that split_columns has split
  bool inverts_loops = false;                // FuseOptions::inverts
  std::vector<Group> groups;                 // between fuse and build_steps
  bool has_steps = false;
  UnsupportedNodes& found;  // NestPassOptions::found
};

struct NestPass {
  std::string_view name;
  void (*function)(Scheduling& state) = nullptr;
  // What target and options must have for it; null: it always runs.
  bool (*needs)(const Options& options) = nullptr;
  // Later passes count on it: it cannot be skipped, and stop_after does not count it.
  bool required = false;
  std::string_view doc;
};

// In order; a function that runs twice has two rows.
[[nodiscard]] std::span<const NestPass> nest_passes();
// nullptr if there is none.
[[nodiscard]] const NestPass* find_nest_pass(std::string_view name);

// Runs those that the options want, and records the time of each. A name in `skip` that is no pass
// or that is a required one is a UserError. Errors get a note naming the pass; what does not verify
// is an InternalError.
[[nodiscard]] ScheduledProgram run_nest_passes(loop::Program program, const Options& options,
                                               const NestPassOptions& run);

}  // namespace inkle::schedule
