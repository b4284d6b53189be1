// Graph to loop nests: asks the row of each node to record itself, then decides what is returned.
//
//   graph: %0: f32[s0,64] = add(%x, %y); return %0
//   loops: n0: pointwise [i0: s0, i1: 64] -> out0[i0,i1] { yield add(load x[i0,i1], load y[i0,i1])
//   }
#pragma once

#include "base/unsupported.h"
#include "graph/graph.h"
#include "loop/program.h"

namespace inkle::lower {

// One buffer for each tensor input and literal, temporaries for results; every output with the
// strides of its graph type (row-major if it has none), in the memory that its sharing says. The
// program shares the graph's symbols.
//
// Nodes that have neither a lowering nor a call to eager are added to `found` and become calls to
// eager without a callable: the program then only shows what else is unsupported. If it is null,
// all of them are thrown as one Unsupported.
[[nodiscard]] loop::Program lower(const graph::Graph& graph, UnsupportedNodes* found = nullptr);

}  // namespace inkle::lower
