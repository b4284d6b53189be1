// Steps that run once and whose results are kept from call to call.
#pragma once

#include "schedule/scheduled.h"

namespace inkle::schedule {

// Sets Step::prepare. A step is prepared when all it reads are parameters, literals or results of
// such steps, and its results are private and of constant size. When `training`, parameters change
// with every call. Needs Step::bytes.
void mark_prepared(ScheduledProgram& scheduled, bool training);

}  // namespace inkle::schedule
