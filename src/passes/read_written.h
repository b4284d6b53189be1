// Ops in eager read an argument itself where their operand is what the graph writes to it.
//
//   %0: f32[8] = add(%x, 1)                            %0: f32[8] = add(%x, 1)
//   %1: f32[8] = eager "aten::foo" 0 (%0)       =>     %1: f32[8] = copy_(%x, %0)
//   %2: f32[8] = copy_(%x, %0)                         %2: f32[8] = eager "aten::foo" 0 (%1)
//
// So it sees the address that it has in eager, by which kernels of torch choose the order in which
// they draw random numbers, and %0 needs no memory. What ops in eager return has memory of its own.
#pragma once

#include "passes/pass.h"

namespace inkle::passes {

std::optional<graph::Graph> read_written(const graph::Graph& graph, PassContext& context);

}  // namespace inkle::passes
