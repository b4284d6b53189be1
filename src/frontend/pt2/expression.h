// Size expressions of torch.export files: SymPy's srepr ("Mul(Integer(2), Symbol('s0', ...))") or
// its plain form ("2*s0").
#pragma once

#include <functional>
#include <string_view>

#include "sym/expr.h"

namespace inkle::frontend::pt2 {

// `symbol` gives the symbol of a name (and may throw for those that it does not know). UserError
// for text that makes no sense, Unsupported for functions that sizes do not have here.
[[nodiscard]] sym::Expr parse_expression(
    std::string_view text, sym::Context& context,
    const std::function<sym::Expr(std::string_view name)>& symbol);

}  // namespace inkle::frontend::pt2
