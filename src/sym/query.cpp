// The public operators and the questions about expressions.
#include <algorithm>
#include <array>
#include <limits>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "sym/expr.h"
#include "sym/node.h"

namespace inkle::sym {
namespace {

Context::Impl& impl_of(Expr e) {
  INKLE_CHECK(!e.is_null(), "null symbolic expression used");
  return e.node()->context->impl();
}

Context::Impl& impl_of(Expr a, Expr b) {
  Context::Impl& impl = impl_of(a);
  INKLE_CHECK(!b.is_null() && b.node()->context == a.node()->context,
              "symbolic expressions of two contexts meet");
  return impl;
}

}  // namespace

Expr operator+(Expr a, Expr b) {
  Context::Impl& impl = impl_of(a, b);
  return impl.finish(impl.add(a.node(), b.node()));
}
Expr operator-(Expr a, Expr b) {
  Context::Impl& impl = impl_of(a, b);
  return impl.finish(impl.sub(a.node(), b.node()));
}
Expr operator*(Expr a, Expr b) {
  Context::Impl& impl = impl_of(a, b);
  return impl.finish(impl.mul(a.node(), b.node()));
}
Expr floordiv(Expr a, Expr b) {
  Context::Impl& impl = impl_of(a, b);
  return impl.finish(impl.floordiv(a.node(), b.node()));
}
Expr mod(Expr a, Expr b) {
  Context::Impl& impl = impl_of(a, b);
  return impl.finish(impl.mod(a.node(), b.node()));
}
Expr min(Expr a, Expr b) {
  Context::Impl& impl = impl_of(a, b);
  return impl.finish(impl.extreme(Kind::min, a.node(), b.node()));
}
Expr max(Expr a, Expr b) {
  Context::Impl& impl = impl_of(a, b);
  return impl.finish(impl.extreme(Kind::max, a.node(), b.node()));
}

Expr operator+(Expr a, std::int64_t b) { return a + Expr(impl_of(a).constant(b)); }
Expr operator-(Expr a, std::int64_t b) { return a - Expr(impl_of(a).constant(b)); }
Expr operator-(std::int64_t a, Expr b) { return Expr(impl_of(b).constant(a)) - b; }
Expr operator*(Expr a, std::int64_t b) {
  Context::Impl& impl = impl_of(a);
  return impl.finish(impl.scale(a.node(), b));
}
Expr operator-(Expr a) { return a * -1; }
Expr floordiv(Expr a, std::int64_t b) { return floordiv(a, Expr(impl_of(a).constant(b))); }
Expr mod(Expr a, std::int64_t b) { return mod(a, Expr(impl_of(a).constant(b))); }
Expr ceildiv(Expr a, Expr b) { return -floordiv(-a, b); }
Expr ceildiv(Expr a, std::int64_t b) { return -floordiv(-a, b); }

Expr product(Context& context, std::span<const Expr> factors) {
  Expr out = context.constant(1);
  for (const Expr factor : factors) out = out * factor;
  return out;
}

Range bounds(Expr e) {
  Context::Impl& impl = impl_of(e);
  Range range = impl.interval(e.node());
  // What symbolic extents tell: s0 - i0 > 0 for i0 < s0.
  if (range.low < 0 && impl.nonneg(e.node())) range.low = 0;
  if (range.low == 0 && impl.below(impl.constant(0), e.node())) range.low = 1;
  if (range.high > 0 && impl.at_most(e.node(), impl.constant(0))) range.high = 0;
  if (range.high == 0 && impl.below(e.node(), impl.constant(0))) range.high = -1;
  return range;
}

bool divides(std::int64_t k, Expr e) { return divides(Expr(impl_of(e).constant(k)), e); }
bool divides(Expr k, Expr e) {
  Context::Impl& impl = impl_of(k, e);
  return impl.divides(k.node(), e.node());
}

std::optional<bool> less_equal(Expr a, Expr b) {
  Context::Impl& impl = impl_of(a, b);
  if (impl.at_most(a.node(), b.node())) return true;
  if (impl.below(b.node(), a.node())) return false;
  for (const Context::Guard& guard : impl.guards) {
    if (guard.left == b && guard.right == a && guard.relation == Context::Relation::less) {
      return false;
    }
    if (guard.left == b && guard.right == a && guard.relation == Context::Relation::greater_equal) {
      return true;
    }
  }
  return std::nullopt;
}

std::optional<bool> less(Expr a, Expr b) {
  const std::optional<bool> reverse = less_equal(b, a);
  if (!reverse) return std::nullopt;
  return !*reverse;
}

namespace {

// A sum as its terms and its constant; null: one of them overflows, as itself or negated.
Context::Impl::Offset offset_of(Context::Impl& impl, const Node* sum) {
  Terms terms;
  append_terms(sum, terms);
  const bool has_constant = !terms.empty() && terms.back().monomial == nullptr;
  const std::int64_t constant = has_constant ? terms.back().coefficient : 0;
  Attempt attempt(impl);
  const Node* rest = impl.sub(sum, impl.constant(constant));
  const bool is_least = constant == std::numeric_limits<std::int64_t>::min();
  return {attempt.failed() || is_least ? nullptr : rest, constant};
}

// Of a guard's left side less its right one.
Context::Impl::GuardedDifference guarded_difference(Context::Impl& impl,
                                                    const Context::Guard& guard) {
  Attempt attempt(impl);
  const Node* difference = impl.sub(guard.left.node(), guard.right.node());
  if (attempt.failed()) return {};
  const Context::Impl::Offset known = offset_of(impl, difference);
  if (known.terms == nullptr) return {};
  const Node* negated = impl.scale(known.terms, -1);
  return attempt.failed() ? Context::Impl::GuardedDifference{}
                          : Context::Impl::GuardedDifference{known, negated};
}

// Whether a difference is 0, where guards tell so: of it, its negation, or one that is off by a
// constant.
std::optional<bool> guarded(Context::Impl& impl, const Node* difference) {
  for (std::size_t g = impl.differences.size(); g < impl.guards.size(); ++g) {
    impl.differences.push_back(guarded_difference(impl, impl.guards[g]));
  }
  if (impl.guards.empty()) return std::nullopt;
  const Context::Impl::Offset asked = offset_of(impl, difference);
  if (asked.terms == nullptr) return std::nullopt;
  for (std::size_t g = 0; g < impl.guards.size(); ++g) {
    const bool is_equal = impl.guards[g].relation == Context::Relation::equal;
    if (!is_equal && impl.guards[g].relation != Context::Relation::not_equal) continue;
    const auto& [known, negated] = impl.differences[g];
    const bool is_same = asked.terms == known.terms;
    if (!is_same && asked.terms != negated) continue;
    const bool is_zero = asked.constant == (is_same ? known.constant : -known.constant);
    if (is_equal || is_zero) return is_equal == is_zero;
  }
  return std::nullopt;
}

}  // namespace

std::optional<bool> equal(Expr a, Expr b) {
  if (a == b) return true;
  Context::Impl& impl = impl_of(a, b);
  Attempt attempt(impl);
  const Node* difference = impl.sub(a.node(), b.node());
  if (attempt.failed()) return std::nullopt;
  if (difference->is_constant()) return difference->value == 0;
  if (const std::optional<bool> known = guarded(impl, difference)) return known;
  Terms terms;
  append_terms(difference, terms);
  if (terms.size() > 1 && terms.back().monomial == nullptr) {
    const Node* rest = impl.sub(difference, impl.constant(terms.back().coefficient));
    const std::int64_t factor = impl.factor(rest);
    if (factor > 1 && terms.back().coefficient % factor != 0) return false;
  }
  if (impl.nonneg(difference)) {
    if (impl.below(impl.constant(0), difference)) return false;
    if (impl.at_most(difference, impl.constant(0))) return true;
  } else if (impl.below(difference, impl.constant(0))) {
    return false;
  }
  return std::nullopt;
}

bool Context::guard_equal(Expr a, Expr b) {
  if (const std::optional<bool> known = equal(a, b)) return *known;
  const std::optional<std::int64_t> left = hint(a);
  const std::optional<std::int64_t> right = hint(b);
  if (!left || !right) {
    unsupported("whether {} == {} depends on a value that is not known", to_string(a),
                to_string(b));
  }
  const bool holds = *left == *right;
  impl_->guards.push_back({a, holds ? Relation::equal : Relation::not_equal, b});
  return holds;
}

bool Context::guard_less(Expr a, Expr b) {
  if (const std::optional<bool> known = less(a, b)) return *known;
  const std::optional<std::int64_t> left = hint(a);
  const std::optional<std::int64_t> right = hint(b);
  if (!left || !right) {
    unsupported("whether {} < {} depends on a value that is not known", to_string(a), to_string(b));
  }
  const bool holds = *left < *right;
  impl_->guards.push_back({a, holds ? Relation::less : Relation::greater_equal, b});
  return holds;
}

bool contains(Expr e, Expr symbol) {
  const Node* node = e.node();
  if (node == symbol.node()) return true;
  if ((node->symbol_filter & symbol.node()->symbol_filter) == 0) return false;
  return std::any_of(node->all().begin(), node->all().end(),
                     [&](Expr operand) { return contains(operand, symbol); });
}

std::optional<Expr> stride(Expr e, Expr variable) {
  Context::Impl& impl = impl_of(e, variable);
  Terms terms;
  append_terms(e.node(), terms);
  Terms out;
  for (const Term& term : terms) {
    if (term.monomial == nullptr || !contains(Expr(term.monomial), variable)) continue;
    Factors rest;
    bool found = false;
    for (const Expr factor : factors_of(term.monomial)) {
      if (factor == variable && !found) {
        found = true;
      } else if (contains(factor, variable)) {
        return std::nullopt;
      } else {
        rest.push_back(factor);
      }
    }
    out.push_back({term.coefficient, impl.monomial(rest)});
  }
  return impl.finish(impl.sum_unsorted(out));
}

namespace {

// Nodes of an expression, of which there are few as a rule.
class Seen {
 public:
  // Whether the node is new.
  bool insert(const Node* node) {
    const auto end = few_.begin() + static_cast<std::ptrdiff_t>(count_);
    if (std::find(few_.begin(), end, node) != end) return false;
    if (count_ == few_.size()) return more_.insert(node).second;
    few_[count_++] = node;
    return true;
  }

 private:
  std::array<const Node*, 24> few_;
  std::size_t count_ = 0;
  std::unordered_set<const Node*> more_;
};

void collect_symbols(Expr e, Seen& seen, Symbols& out) {
  if (e.node()->symbol_filter == 0 || !seen.insert(e.node())) return;
  if (e.kind() == Kind::symbol) out.push_back(e);
  for (const Expr operand : e.operands()) collect_symbols(operand, seen, out);
}

// What has been found for some nodes, of which there are few as a rule.
class Known {
 public:
  [[nodiscard]] std::optional<Expr> find(const Node* node) const {
    for (const auto& [of, to] : few_) {
      if (of == node) return to;
    }
    const auto found = more_.find(node);
    return found == more_.end() ? std::nullopt : std::optional(found->second);
  }
  void keep(const Node* node, Expr to) {
    if (few_.size() < kFew) {
      few_.push_back({node, to});
    } else {
      more_.emplace(node, to);
    }
  }

 private:
  static constexpr std::size_t kFew = 16;
  struct Pair {
    const Node* of = nullptr;
    Expr to;
  };
  InlineVector<Pair, kFew> few_;
  std::unordered_map<const Node*, Expr> more_;
};

class Substituter {
 public:
  Substituter(Substitution map, std::uint64_t filter) : map_(map), filter_(filter) {}

  Expr apply(Expr e) {
    if ((e.node()->symbol_filter & filter_) == 0) return e;
    if (e.kind() == Kind::symbol) {
      for (const auto& [symbol, value] : map_) {
        if (symbol == e) return value;
      }
      return e;
    }
    if (const std::optional<Expr> known = done_.find(e.node())) return *known;
    const Expr out = rebuild(e);
    done_.keep(e.node(), out);
    return out;
  }

 private:
  Expr rebuild(Expr e) {
    const std::span<const Expr> operands = e.operands();
    if (e.kind() == Kind::add) return sum(e);
    Expr out = apply(operands[0]);
    for (const Expr operand : operands.subspan(1)) {
      const Expr next = apply(operand);
      switch (e.kind()) {
        case Kind::mul:
          out = out * next;
          break;
        case Kind::floordiv:
          out = floordiv(out, next);
          break;
        case Kind::mod:
          out = mod(out, next);
          break;
        case Kind::min:
          out = min(out, next);
          break;
        case Kind::max:
          out = max(out, next);
          break;
        case Kind::add:
        case Kind::constant:
        case Kind::symbol:
          break;
      }
    }
    return out;
  }

  // Sums of polynomials have one normal form, whatever the order: they are made at once.
  Expr sum(Expr e) {
    InlineVector<Expr, 12> parts;
    bool has_division = false;
    for (const Expr operand : e.operands()) {
      parts.push_back(apply(operand));
      has_division = has_division || parts.back().node()->has_division;
    }
    if (has_division) {
      Expr out = parts[0];
      for (std::size_t i = 1; i < parts.size(); ++i) out = out + parts[i];
      return out;
    }
    Terms terms;
    for (const Expr part : parts) append_terms(part.node(), terms);
    Context::Impl& impl = impl_of(parts[0]);
    return impl.finish(impl.sum_unsorted(terms));
  }

  Substitution map_;
  std::uint64_t filter_;
  Known done_;
};

// An empty result with `zero` telling the reason.
struct Evaluator {
  const std::function<std::optional<std::int64_t>(Expr)>& value;
  bool zero = false;
  bool overflow = false;

  std::optional<std::int64_t> run(Expr e) {
    if (e.is_constant()) return e.node()->value;
    if (e.kind() == Kind::symbol) return value(e);
    std::optional<std::int64_t> out = run(e.operands()[0]);
    for (const Expr operand : e.operands().subspan(1)) {
      if (!out) return std::nullopt;
      const std::optional<std::int64_t> next = run(operand);
      if (!next) return std::nullopt;
      zero = *next == 0 && (e.kind() == Kind::floordiv || e.kind() == Kind::mod);
      out = evaluate(e.kind(), *out, *next);
      overflow = !out && !zero;
    }
    return out;
  }
};

}  // namespace

Symbols symbols(Expr e) {
  if (e.node()->symbol_filter == 0) return {};
  if (e.kind() == Kind::symbol) return {e};
  Seen seen;
  Symbols out;
  collect_symbols(e, seen, out);
  std::sort(out.begin(), out.end(), [](Expr a, Expr b) { return a.id() < b.id(); });
  return out;
}

Expr substitute(Expr e, Substitution map) {
  std::uint64_t filter = 0;
  for (const auto& [symbol, value] : map) {
    INKLE_CHECK(symbol.kind() == Kind::symbol, "substitute() replaces symbols only");
    filter |= symbol.node()->symbol_filter;
  }
  if ((e.node()->symbol_filter & filter) == 0) return e;
  return Substituter(map, filter).apply(e);
}

std::optional<std::int64_t> hint(Expr e) {
  const std::function<std::optional<std::int64_t>(Expr)> value = [](Expr symbol) {
    return symbol.context().info(symbol).hint;
  };
  return Evaluator{value}.run(e);
}

std::int64_t evaluate(Expr e, const std::function<std::int64_t(Expr)>& value) {
  const std::function<std::optional<std::int64_t>(Expr)> wrapped =
      [&](Expr symbol) -> std::optional<std::int64_t> { return value(symbol); };
  Evaluator evaluator{wrapped};
  const std::optional<std::int64_t> out = evaluator.run(e);
  if (out) return *out;
  if (evaluator.zero) user_error("division by zero in {}", to_string(e));
  user_error("overflow in {}", to_string(e));
}

}  // namespace inkle::sym
