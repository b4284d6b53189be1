#include "schedule/schedule.h"

#include "schedule/nest_passes.h"

namespace inkle::schedule {

ScheduledProgram schedule(loop::Program program, const Options& options,
                          const NestPassOptions& run) {
  return run_nest_passes(std::move(program), options, run);
}

}  // namespace inkle::schedule
