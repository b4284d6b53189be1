// Conditions and constants that several rule files share.
#pragma once

#include <optional>

#include "passes/rules.h"

namespace inkle::passes {

// x has the root's dtype, device and sizes, also to what reads the root.
[[nodiscard]] bool same_type(Match& match);
// Every value of `from` is a value of `to`.
[[nodiscard]] bool holds_exactly(graph::DType to, graph::DType from);
// The argument as a constant integer.
[[nodiscard]] std::optional<std::int64_t> constant_integer(const graph::Argument* argument);
// A dimension number brought into 0..rank-1.
[[nodiscard]] std::optional<std::size_t> dimension(const graph::Argument* argument,
                                                   std::size_t rank);

}  // namespace inkle::passes
