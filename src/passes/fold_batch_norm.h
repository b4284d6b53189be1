// With freeze: batch norm behind a convolution goes into the convolution's weights and bias.
//
//   %0 = convolution(%x, %c0, none, ..)                   %0 = convolution(%x, %c0', %c1', ..)
//   %1 = batch_norm(%0, %gamma, %beta, %mean, %var)  =>
//
// with c0' = c0 * gamma / sqrt(var + eps) and c1' = beta - mean * gamma / sqrt(var + eps), written
// as nodes on literals that fold_constants then computes. f32 and f64 only: a product rounded to
// bf16 would lose accuracy. Runs before fold_constants; without freeze weights may change between
// calls.
#pragma once

#include "passes/pass.h"
#include "passes/rules.h"

namespace inkle::passes {

std::optional<graph::Graph> fold_batch_norm(const graph::Graph& graph, PassContext& context);

[[nodiscard]] RuleSet batch_norm_rules(const graph::OpTable& table);

}  // namespace inkle::passes
