// What numerics=batch_invariant asks of nests and steps, results of a row that do not depend on the
// batch around it, and what numerics=fast asks. See docs/numerics.md.
#pragma once

#include <string>
#include <vector>

#include "loop/program.h"
#include "schedule/schedule.h"
#include "schedule/scheduled.h"

namespace inkle::schedule {

// Whether every stage chooses the order of sums without regard to the batch.
[[nodiscard]] bool fixes_order(const Options& options);

// Float reductions combine their terms in an order that is read off the reduced loops as they were
// lowered: `rows` where the last one moves along the last dimension of all that it reads, else
// `columns`. Runs before anything depends on sizes.
[[nodiscard]] Associations associations_of(const loop::Program& program);

// Adds reductions that contractions have become: term after term.
void add_contractions(const loop::Program& program, Associations& associations);

// Products of f16 and bf16 become ones of f32 with a rounding after them, for the template.
void widen_products(loop::Program& program);

// numerics=fast: inside of a loop what one op has rounded to f16 or bf16 and the next one widens is
// not rounded; what is stored is. On steps that are done.
void drop_roundings(std::vector<Step>& steps);

// An op whose results are not what Options::numerics promises, and why.
struct NotHeld {
  std::string op, source, reason;
};
[[nodiscard]] std::vector<NotHeld> not_held(const ScheduledProgram& scheduled,
                                            const Options& options);

}  // namespace inkle::schedule
