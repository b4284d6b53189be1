// Decomposed attention (SDPA) becomes the one attention op.
//
//   %0 = matmul(%q, %kt)
//   %1 = mul(%0, 0.125)
//   %2 = add(%1, %mask)            =>   %0 = transpose(%kt, -2, -1)
//   %3 = _softmax(%2, -1, false)        %1 = sdpa(%q, %0, %v, %mask, 0.0, false, 0.125)
//   %4 = matmul(%3, %v)
//
// In the usual variants: scaled by a number before or after the product, multiplied or divided;
// with a mask added, selected or filled in, or none; softmax in f32 between casts; 3-D or 4-D, or
// 4-D products written as bmm between views. The op keeps scores in f32 and never stores them. Not
// where the scores or weights are used elsewhere too. Runs before decompose, which would take
// softmax apart.
#pragma once

#include "passes/pass.h"
#include "passes/rules.h"

namespace inkle::passes {

std::optional<graph::Graph> attention(const graph::Graph& graph, PassContext& context);

// In a joint forward-backward graph the gradient reads the weights, too. The forward becomes one op
// all the same; the weights are left to the backward, which computes them again from query and key,
// so that no matrix of scores is kept:
//
//   %p = _softmax(mul(matmul(%q, %kt), 0.1))    =>   %p = ... as before, read by the backward only
//   %y = matmul(%p, %v)                              %y = sdpa(%q, t(%kt), %v, scale = 0.1)
std::optional<graph::Graph> joint_attention(const graph::Graph& graph, PassContext& context);

[[nodiscard]] RuleSet product_rules(const graph::OpTable& table);
[[nodiscard]] RuleSet attention_rules(const graph::OpTable& table);

}  // namespace inkle::passes
