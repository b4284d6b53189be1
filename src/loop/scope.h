// Moving expressions between contexts: text names iteration variables by their position in the nest
// (i0, r0, j0), whatever they are called in the program. For the text of loops and of kernels.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "sym/expr.h"

namespace inkle::loop {

// Rebuilds expressions of one context in another; symbols must have been mapped.
class Translation {
 public:
  explicit Translation(sym::Context& to) : to_(to) {}
  void map(sym::Expr from, sym::Expr to) { map_.insert_or_assign(from, to); }
  // Throws InternalError on a symbol that is not mapped.
  [[nodiscard]] sym::Expr operator()(sym::Expr e) const;

 private:
  sym::Context& to_;
  std::unordered_map<sym::Expr, sym::Expr> map_;
};

// A fresh symbol of `context` called `name`, or with underscores behind it if that is taken.
[[nodiscard]] sym::Expr named_index(sym::Context& context, std::string name, sym::Expr extent);
// Copies a size symbol, with its facts.
[[nodiscard]] sym::Expr copy_symbol(sym::Context& context, sym::Expr symbol);

}  // namespace inkle::loop
