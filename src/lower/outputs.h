// What a program returns: decides for each output and each storage that several share whether its
// buffer can be returned as it is or must be copied. For the files of this folder only.
#pragma once

#include "graph/graph.h"
#include "loop/program.h"
#include "ops/lowering.h"

namespace inkle::lower {

// Appends the graph's outputs to the program, in memory that they share as their contract says; may
// append copy nests. A buffer becomes the memory of the first output or storage that wants it as it
// is, others get copies.
void record_outputs(const graph::Graph& graph, ops::LoweringState& state, loop::Program& program);

}  // namespace inkle::lower
