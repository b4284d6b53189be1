// Inlines cheap pointwise producers into their consumers.
//
//   n0: pointwise [i] -> t0 { yield add(load x[i], load y[i]) }
//   n1: pointwise [i] -> t1 { yield tanh(load t0[i]) }
// becomes
//   n1: pointwise [i] -> t1 { yield tanh(add(load x[i], load y[i])) }
//
// Runs first, on logical indices: views have vanished into index maps and no layout is fixed yet.
#pragma once

#include "loop/program.h"

namespace inkle::schedule {

// `keep_roundings`: as in Options.
void inline_pointwise(loop::Program& program, bool keep_roundings = false);

// Removes nests whose results are not read (outputs, mutated inputs and calls to eager are kept).
void remove_dead_nests(loop::Program& program);

// What one evaluation of a body costs.
struct BodyCost {
  std::int64_t loads = 0;
  std::int64_t cheap = 0;      // arithmetic, selects, casts
  std::int64_t expensive = 0;  // functions, divisions, indirect loads
};
[[nodiscard]] BodyCost cost_of(const loop::Body& body);

// Buffers that more than one nest writes, and inputs that any nest writes.
[[nodiscard]] std::vector<bool> mutated_buffers(const loop::Program& program);

}  // namespace inkle::schedule
