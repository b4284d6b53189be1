// Runs what the compiler makes of a graph for a GPU without one: every kernel, after all kernel
// passes, under the interpreter of the kernel IR.
#pragma once

#include <string>
#include <vector>

#include "driver/differential.h"
#include "graph/graph.h"
#include "ops/interpreter.h"

namespace inkle::driver {

struct HostOptions {
  std::string architecture = "sm_90a";
  std::vector<std::string> skip;  // kernel passes
};

struct HostedCall : CallResult {
  std::size_t kernels = 0;
};

// One call, with the values of symbols. Buffers have memory of their own, filled with garbage
// before the call. Throws Unsupported where a step is no kernel of loops or takes too long, or a
// guard does not hold. What the interpreter finds is an InternalError: accesses outside, races,
// barriers that not all threads reach; not that one store writes an element of a result twice.
[[nodiscard]] HostedCall run_on_host(graph::Graph graph, const std::vector<ops::RefTensor>& inputs,
                                     const ops::SymbolValues& symbols,
                                     const HostOptions& options = {});

}  // namespace inkle::driver
