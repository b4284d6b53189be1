// What must hold of every schedule, whatever the rewrites before it did.
#pragma once

#include "schedule/scheduled.h"

namespace inkle::schedule {

// Throws InternalError naming step and buffer where a step reads a buffer that nothing has been
// written to (steps that prepare: by steps that prepare, as they run first), where an output is
// never written, and where kernels whose loops have constant extents store at fewer points than a
// buffer has elements.
void verify(const ScheduledProgram& scheduled);

}  // namespace inkle::schedule
