// Graphs as text (EXAMPLE in docs/graph.md): print(parse(t)) == t on every canonical text.
//
//   graph @mlp(%x: f32[s0,64], %w: f32[64,128] param) -> f32[s0,128] where s0 in 2..4096 hint 8 {
//     %0: f32[s0,128] = mm(%x, %w)
//     %1: f32[s0,128] = relu(%0)                   # model.py:12
//     return %1
//   }
//
// A type that has strides says so behind its sizes, "f32[4,8]{1,4}". Inputs, literals and outputs
// always have strides: row-major where none are written; other values have free ones.
//
// Integer inputs are "%s0: int"; several results "%1: t, %2: t = op(..)"; arguments are printed in
// schema order, trailing ones equal to their default left out; a literal tensor is
// "%c0: i64[2] = literal [1, 2]"; a call to eager "%3: f32[..] = eager \"aten::foo\" 5 (..)", with
// its number in the host's table. Nodes that may reuse their first operand's memory end in
// "in_place", those that the partition must save or recompute in "saved" and "recomputed".
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "graph/graph.h"

namespace inkle::graph {

[[nodiscard]] std::string to_string(const Graph& graph);
// The parser derives every type again; a difference from the text is a UserError with its place.
[[nodiscard]] Graph parse(std::string_view text, std::string_view file, const OpTable& table,
                          std::shared_ptr<sym::Context> context = nullptr);

}  // namespace inkle::graph
