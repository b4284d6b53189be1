// Removes no-ops and brings the rest to a canonical form, by rules written as text.
//
//   %0: f32[8] = mul(%x, 1)
//   %1: f32[2,4] = view(%0, [2, 4])
//   %2: f32[8] = view(%1, [8])         =>   %0: f32[8] = exp(%x)
//   %3: f32[8] = exp(%2)                    return %0
//   return %3
//
// Exact to the bit: x + 0 stays for floats, since -0.0 + 0 is 0. Runs first, so that patterns see
// one form, and again after decompose.
#pragma once

#include "passes/pass.h"
#include "passes/rules.h"

namespace inkle::passes {

std::optional<graph::Graph> canonicalise(const graph::Graph& graph, PassContext& context);

// The rules, read for this table.
[[nodiscard]] RuleSet canonical_rules(const graph::OpTable& table);

}  // namespace inkle::passes
