// Reductions in parts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "loop/program.h"

namespace inkle::schedule {

// Pairs the loops of more than one iteration, one by one; false if they differ in number or extent.
[[nodiscard]] bool pair_loops(const std::vector<loop::Dim>& from, const std::vector<loop::Dim>& to,
                              std::vector<std::pair<sym::Expr, sym::Expr>>& map);

// Of how many reduced loops, from the first on, each iteration becomes a part on a GPU, so that
// there are about `wanted`: whole loops and a divisor of the next, which is then divided. At least
// one loop stays.
[[nodiscard]] std::size_t loops_of_parts(loop::Nest& nest, sym::Context& context,
                                         std::int64_t wanted);

// Appends to `result` the nest over each part, which are the iterations of its first `moved`
// reduced loops, and what makes its results of those. `columns`: results of one part lie next to
// each other, else those of one sum.
void split(loop::Program& program, const loop::Nest& nest, std::size_t moved, bool columns,
           std::vector<loop::Nest>& result);

}  // namespace inkle::schedule
