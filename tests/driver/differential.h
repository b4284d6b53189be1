// Runs a graph through every stage, down to machine code, and through the graph interpreter.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "driver/pipeline.h"
#include "graph/graph.h"
#include "ops/interpreter.h"

namespace inkle::driver {

// Tensors of their own row-major memory, results included.
struct CallResult {
  std::vector<ops::InterpretedOutput> outputs;
  std::vector<ops::RefTensor> inputs;  // after the call
};

struct RunResult : CallResult {
  std::optional<CallResult> later;  // of the call with other integers, unless a guard fails there
  std::shared_ptr<const abi::Plan> plan;
  Report report;
  std::string kernels;  // text of that stage
};

// One compiler for all tests of the process: equal kernels compile once.
[[nodiscard]] Compiler& shared_compiler();

// Compiles and runs twice; throws InternalError where the second call gives something else, or
// where results share memory with arguments or each other otherwise than the graph says. `integers`
// are the values of integer inputs, in order; a call with the `later` ones comes in between, if
// there are any. Working memory is filled with garbage before it is used.
[[nodiscard]] RunResult compile_and_run(graph::Graph graph,
                                        const std::vector<ops::RefTensor>& inputs,
                                        const std::vector<std::int64_t>& integers = {},
                                        const CompileOptions& options = {},
                                        Compiler& compiler = shared_compiler(),
                                        const std::vector<std::int64_t>& later = {});

// Compares a call with what it should give and leave in its inputs, element by element. Errors are
// gtest failures.
void expect_results(const std::vector<ops::InterpretedOutput>& want,
                    const std::vector<ops::RefTensor>& inputs, const CallResult& got);

// Compares with the interpreter, element by element; mutated inputs too. Errors are gtest failures.
RunResult expect_as_interpreted(const graph::Graph& graph, std::vector<ops::RefTensor> inputs,
                                const ops::SymbolValues& symbols = {},
                                Compiler& compiler = shared_compiler());

// Uniform values; whole numbers for whole types, both ends included, unsigned ones from 0.
[[nodiscard]] ops::RefTensor random_tensor(const graph::Type& type, double low, double high,
                                           std::uint32_t seed);

// Parses the text, makes random inputs in [-2, 2] (integers: [0, 3]) and compares.
RunResult expect_text_as_interpreted(std::string_view text);

// Appends an integer input for each size symbol of the graph, as a frontend does; their hints.
ops::SymbolValues bind_symbols(graph::Graph& graph);

}  // namespace inkle::driver
