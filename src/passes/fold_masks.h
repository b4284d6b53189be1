// Neutral masks of attention are removed; causal ones become the flag is_causal.
//
//   %0: i64[s0] = arange(s0)
//   %1: i64[s0,1] = unsqueeze(%0, 1)
//   %2: bool[s0,s0] = ge(%1, %0)                 =>   %3: .. = sdpa(%q, %k, %v, none, 0.0, true)
//   %3: .. = sdpa(%q, %k, %v, %2)
//
// Proved, for all sizes: the mask's element is computed symbolically at query index q and key index
// k. It is neutral if it is true (or 0.0) everywhere, causal if it is so for k <= q and false (or
// far below any score) for k > q. Whatever ops made it: only loop bodies are looked at. Runs after
// the attention pass.
#pragma once

#include "passes/pass.h"
#include "passes/rules.h"

namespace inkle::passes {

std::optional<graph::Graph> fold_masks(const graph::Graph& graph, PassContext& context);

// What a mask of scores is proved to say, for all sizes.
enum class MaskKind : std::uint8_t { other, neutral, causal };
// `keeps`: of a bool mask, what true means; else it hides.
[[nodiscard]] MaskKind mask_kind(const graph::Graph& graph, graph::ValueId mask, bool keeps);

[[nodiscard]] RuleSet mask_rules(const graph::OpTable& table);

}  // namespace inkle::passes
