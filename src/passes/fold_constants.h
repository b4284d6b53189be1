// Computes, with the reference interpreter, what depends on literals and creation ops only.
//
//   %c0: f32[2] = literal [1.0, 3.0]
//   %0: f32[] = full([], 2.0, f32)           =>   %c0: f32[2] = literal [2.0, 6.0]
//   %1: f32[2] = mul(%c0, %0)                     %0: f32[2] = add(%x, %c0)
//   %2: f32[2] = add(%x, %1)
//
// A result whose elements are all equal becomes `full` again, one that is used as an operand that
// may also be a number becomes that number where the result's type stays the same. Creation ops
// by themselves stay: code makes them faster than memory holds them. Runs before the patterns, for
// masks, and after decompose.
#pragma once

#include "passes/pass.h"

namespace inkle::passes {

// Tensors above this many elements are not folded, but with Options::freeze.
inline constexpr std::int64_t kMaxFoldedElements = 4096;

std::optional<graph::Graph> fold_constants(const graph::Graph& graph, PassContext& context);

}  // namespace inkle::passes
