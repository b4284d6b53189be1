// Pointwise work after a contraction, as post-ops of the library call.
//
//   n3: matmul -> t2                       n4: pointwise { yield gelu(add(load t2[..], load c[o]))
//   }
// becomes one call with bias c and the post-op gelu_erf. What is recognised is the arithmetic of
// the recorded body, never the name of an op.
#pragma once

#include <map>

#include "abi/target.h"
#include "loop/program.h"
#include "schedule/scheduled.h"

namespace inkle::schedule {

// Contractions of the program as steps, by the buffer that they write, each with the ops fused.
using ContractionSteps = std::map<loop::BufferId, Step>;

// Removes the pointwise nests that were fused; the contraction's nest then writes their
// buffer, stands in their place in the order and keeps their body (for what it reads). Matmuls and
// convolutions that the library cannot run are left out of the map.
[[nodiscard]] ContractionSteps build_contractions(loop::Program& program,
                                                  const abi::Libraries& libraries);

}  // namespace inkle::schedule
