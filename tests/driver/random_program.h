// Random programs of many ops from the op table's own samples, for differential tests of the whole
// compiler. Values are known while a program grows, so that it stays away from NaN and overflow.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "graph/graph.h"
#include "ops/interpreter.h"

namespace inkle::driver {

struct Program {
  graph::Graph graph;
  std::vector<ops::RefTensor> inputs;  // tensor inputs, in order
  ops::SymbolValues symbols;
  ops::SymbolValues later;  // other values of the symbols that are no sizes, for another call
};

struct ProgramOptions {
  std::uint32_t nodes = 12;
};

// The same program for the same seed.
[[nodiscard]] Program random_program(std::uint32_t seed, const ProgramOptions& options = {});

// The same program with the values of another call, where it has some that its inputs fit.
[[nodiscard]] std::optional<Program> at_later_values(const Program& program);

// One evaluation: outputs, then inputs as the call leaves them. With `noise` every float that a
// node makes, and every float input, is off by up to a few units in the last place of what it is
// computed in: how far results then move tells what rounding may do to them.
[[nodiscard]] std::vector<ops::RefTensor> evaluate(const Program& program,
                                                   std::optional<std::uint32_t> noise = {});

// A smaller program that `fails` too: nodes become inputs of the same values, outputs and what
// nothing needs go.
[[nodiscard]] Program reduce(Program program, const std::function<bool(const Program&)>& fails);

}  // namespace inkle::driver
