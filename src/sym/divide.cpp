// floordiv and mod. Both bring the dividend to the same reduced form, so that a sum can recognise
// k*floordiv(x,k) + mod(x,k). A divisor of 0 has no value: a rule may lose such a division, so
// where a rule needs k > 0 of a factor k of the divisor, k >= 0 is enough to show.
#include <algorithm>

#include "sym/expr.h"
#include "sym/node.h"

namespace inkle::sym {
namespace {

// Enough for the products of a few sums that shapes are made of; both only bound the work.
constexpr int kMostDivisionSteps = 32;
constexpr std::size_t kMostCandidates = 8;

// monomial / by, where all factors of `by` are in it; false if they are not.
bool divide_monomial(Context::Impl& impl, const Node* monomial, const Node* by, const Node*& out) {
  if (by == nullptr) {
    out = monomial;
    return true;
  }
  if (monomial == nullptr) return false;
  const std::span<const Expr> all = factors_of(monomial);
  const std::span<const Expr> remove = factors_of(by);
  Factors rest;
  std::size_t j = 0;
  for (const Expr e : all) {
    if (j < remove.size() && e == remove[j]) {
      ++j;
    } else {
      rest.push_back(e);
    }
  }
  if (j != remove.size()) return false;
  out = impl.monomial(rest);
  return true;
}

const Node* common_monomial(Context::Impl& impl, const Node* a, const Node* b) {
  if (a == nullptr || b == nullptr) return nullptr;
  if (a == b) return a;
  const std::span<const Expr> left = factors_of(a);
  const std::span<const Expr> right = factors_of(b);
  Factors out;
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < left.size() && j < right.size()) {
    const int order = compare_atoms(left[i].node(), right[j].node());
    if (order == 0) out.push_back(left[i]);
    if (order <= 0) ++i;
    if (order >= 0) ++j;
  }
  return impl.monomial(out);
}

// The greatest term that divides all terms of e.
Term content(Context::Impl& impl, const Node* e) {
  Terms terms;
  append_terms(e, terms);
  Term common{0, nullptr};
  bool first = true;
  for (const Term& term : terms) {
    common.coefficient = gcd(common.coefficient, term.coefficient);
    common.monomial = first ? term.monomial : common_monomial(impl, common.monomial, term.monomial);
    first = false;
  }
  return common;
}

bool is_negative_lead(const Node* n) {
  return (n->kind == Kind::add ? n->operand(0)->value : n->value) < 0;
}

// e == q*n + r, a term at a time; with a sum as divisor only while r gets shorter (or `exact`).
Context::Impl::Division divide_by_sum(Context::Impl& impl, const Node* e, const Node* n,
                                      bool exact) {
  const Node* lead = n->operand(0);
  const Node* quotient = impl.constant(0);
  for (int step = 0; step < kMostDivisionSteps; ++step) {
    Terms terms;
    append_terms(e, terms);
    bool changed = false;
    for (const Term& term : terms) {
      const Node* monomial = nullptr;
      if (term.coefficient == Range::kMin || term.coefficient / lead->value == 0) continue;
      if (!divide_monomial(impl, term.monomial, lead->monomial, monomial)) continue;
      const Node* part = impl.scaled(term.coefficient / lead->value, monomial);
      const Node* rest = impl.sub(e, impl.mul(part, n));
      Terms left;
      append_terms(rest, left);
      if (!exact && left.size() >= terms.size()) continue;
      quotient = impl.add(quotient, part);
      e = rest;
      changed = true;
      break;
    }
    if (!changed) break;
  }
  return {quotient, e};
}

struct Split {
  const Node* multiple = nullptr;  // of g, divided by it
  const Node* rest = nullptr;
};

// e == g*multiple + rest; of the constant term rest gets what is in [0, g).
Split split_by(Context::Impl& impl, const Node* e, const Term& g) {
  Terms terms;
  append_terms(e, terms);
  Terms multiple;
  Terms rest;
  for (const Term& term : terms) {
    const Node* monomial = nullptr;
    if (term.monomial == nullptr && g.monomial == nullptr) {
      const std::int64_t q = floor_div(term.coefficient, g.coefficient);
      const std::int64_t r = floor_mod(term.coefficient, g.coefficient);
      if (q != 0) multiple.push_back({q, nullptr});
      if (r != 0) rest.push_back({r, nullptr});
    } else if (term.coefficient % g.coefficient == 0 &&
               divide_monomial(impl, term.monomial, g.monomial, monomial)) {
      multiple.push_back({term.coefficient / g.coefficient, monomial});
    } else {
      rest.push_back(term);
    }
  }
  return {impl.sum_unsorted(multiple), impl.sum_unsorted(rest)};
}

struct Common {
  const Node* factor = nullptr;    // g; null where no split was found
  const Node* dividend = nullptr;  // z
  const Node* divisor = nullptr;   // k
  const Node* rest = nullptr;      // r
};

// Finds e == g*z + r and n == g*k with r == 0, or 0 <= r < g and k > 0.
Common find_common(Context::Impl& impl, const Node* e, const Node* n) {
  const Term whole = content(impl, n);
  if (whole.coefficient == 1 && whole.monomial == nullptr) return {};
  Terms terms;
  append_terms(e, terms);
  InlineVector<Term, kMostCandidates> candidates;
  const auto propose = [&](Term g) {
    if (g.coefficient == 1 && g.monomial == nullptr) return;
    if (candidates.size() >= kMostCandidates) return;
    for (const Term& other : candidates) {
      if (other.coefficient == g.coefficient && other.monomial == g.monomial) return;
    }
    candidates.push_back(g);
  };
  Term all{0, nullptr};
  bool first = true;
  for (const Term& term : terms) {
    if (term.monomial == nullptr) continue;
    const Term g{gcd(term.coefficient, whole.coefficient),
                 common_monomial(impl, term.monomial, whole.monomial)};
    propose(g);
    all.coefficient = gcd(all.coefficient, g.coefficient);
    all.monomial = first ? g.monomial : common_monomial(impl, all.monomial, g.monomial);
    first = false;
  }
  if (!first) propose(all);
  for (const Term& g : candidates) {
    const Node* factor = impl.scaled(g.coefficient, g.monomial);
    if (factor == n) continue;
    const Split split = split_by(impl, e, g);
    if (split.multiple->is_constant(0)) continue;
    const Node* divisor = split_by(impl, n, g).multiple;
    if (!split.rest->is_constant(0)) {
      if (impl.interval(divisor).low < 0 && !impl.nonneg(divisor)) continue;
      if (!impl.in_range(split.rest, factor)) continue;
    }
    return {factor, split.multiple, divisor, split.rest};
  }
  return {};
}

// The only floordiv with coefficient 1 among the terms of e; null if there is none or another.
const Node* only_quotient(const Node* e) {
  Terms terms;
  append_terms(e, terms);
  const Node* found = nullptr;
  for (const Term& term : terms) {
    if (term.coefficient != 1 || term.monomial == nullptr) continue;
    if (term.monomial->kind != Kind::floordiv) continue;
    if (found != nullptr) return nullptr;
    found = term.monomial;
  }
  return found;
}

// q with q*n <= e < (q+1)*n for all values, by bounds; for constants n > 0.
const Node* constant_quotient(Context::Impl& impl, const Node* e, const Node* n) {
  if (!n->is_constant()) {
    if (impl.in_range(e, n)) return impl.constant(0);
    // -n <= e < 0
    const Node* minus_one = impl.constant(-1);
    if (impl.at_most(e, minus_one) && impl.nonneg(impl.add(e, n))) return minus_one;
    return nullptr;
  }
  const Range range = impl.interval(e);
  if (range.low != Range::kMin && range.high != Range::kMax) {
    const std::int64_t q = floor_div(range.low, n->value);
    if (q == floor_div(range.high, n->value)) return impl.constant(q);
  }
  return impl.in_range(e, n) ? impl.constant(0) : nullptr;
}

// A term known to be a multiple of n > 1, divided by it: some factors f become floordiv(f, g) with
// g dividing f. Null if the facts do not show it, or would give back the same floordiv.
const Node* divide_by_fact(Context::Impl& impl, const Node* term, std::int64_t n) {
  if (term->monomial == nullptr || impl.factor(term) % n != 0) return nullptr;
  const std::span<const Expr> factors = factors_of(term->monomial);
  std::int64_t left = n / gcd(term->value, n);
  const Node* out = impl.constant(term->value / gcd(term->value, n));
  for (const Expr f : factors) {
    const std::int64_t g = gcd(left, impl.factor(f.node()));
    left /= g;
    out = impl.mul(out, impl.floordiv(f.node(), impl.constant(g)));
  }
  return left == 1 ? out : nullptr;
}

// by_fact: e == n*q + r with q of the terms whose factors are known multiples.
Context::Impl::Division extract_by_fact(Context::Impl& impl, const Node* e, const Node* n) {
  const bool is_atom = e->kind != Kind::add && e->kind != Kind::mul;
  if (!n->is_constant() || is_atom) return {impl.constant(0), e};
  Terms terms;
  append_terms(e, terms);
  Terms rest;
  const Node* quotient = impl.constant(0);
  for (const Term& term : terms) {
    const Node* one = impl.scaled(term.coefficient, term.monomial);
    const Node* part = divide_by_fact(impl, one, n->value);
    if (part != nullptr) {
      quotient = impl.add(quotient, part);
    } else {
      rest.push_back(term);
    }
  }
  return {quotient, impl.sum_unsorted(rest)};
}

const Node* atom(Context::Impl& impl, Kind kind, const Node* e, const Node* n) {
  const Expr operands[] = {Expr(e), Expr(n)};
  return impl.intern(kind, operands);
}

// What is returned after a failure does not count: the caller keeps the division as it is.
const Node* rules_of_floordiv(Context::Impl& impl, const Node* e, const Node* n) {
  if (is_negative_lead(n)) {  // negate
    const Node* minus_e = impl.scale(e, -1);
    const Node* minus_n = impl.scale(n, -1);
    if (impl.failure != Context::Impl::Failure::none) return e;
    return impl.floordiv(minus_e, minus_n);
  }
  if (const Node* q = constant_quotient(impl, e, n)) return q;  // in_range
  const Context::Impl::Division parts = impl.divide(e, n, false);
  if (!parts.quotient->is_constant(0)) {  // extract
    return impl.add(parts.quotient, impl.floordiv(parts.rest, n));
  }
  const Context::Impl::Division known = extract_by_fact(impl, e, n);
  if (!known.quotient->is_constant(0)) {  // by_fact
    return impl.add(known.quotient, impl.floordiv(known.rest, n));
  }
  if (const Common common = find_common(impl, e, n); common.factor != nullptr) {  // cancel
    return impl.floordiv(common.dividend, common.divisor);
  }
  if (e->kind == Kind::mod) {  // quotient_of_mod
    const Node* a = impl.exact_quotient(e->operand(1), n);
    if (a != nullptr && (impl.interval(a).low >= 0 || impl.nonneg(a))) {
      return impl.mod(impl.floordiv(e->operand(0), n), a);
    }
  }
  if (const Node* inner = only_quotient(e)) {  // nest
    const Node* c = inner->operand(1);
    if (impl.interval(n).low >= 0 || impl.nonneg(n)) {
      const Node* others = impl.sub(e, inner);
      return impl.floordiv(impl.add(impl.mul(c, others), inner->operand(0)), impl.mul(c, n));
    }
  }
  return atom(impl, Kind::floordiv, e, n);
}

// strip: c*r*mod(x,m) may be replaced by c*r*x under mod n where n divides c*r*m.
const Node* strip_mods(Context::Impl& impl, const Node* e, const Node* n) {
  Terms terms;
  append_terms(e, terms);
  for (const Term& term : terms) {
    if (term.monomial == nullptr || !term.monomial->has_division) continue;
    for (const Expr f : factors_of(term.monomial)) {
      if (f.kind() != Kind::mod) continue;
      const Node* rest = nullptr;
      divide_monomial(impl, term.monomial, f.node(), rest);
      const Node* beside = impl.scaled(term.coefficient, rest);
      const Node* period = impl.mul(beside, f.node()->operand(1));
      if (!impl.divides(n, period)) continue;
      const Node* old = impl.scaled(term.coefficient, term.monomial);
      return impl.add(impl.sub(e, old), impl.mul(beside, f.node()->operand(0)));
    }
  }
  return nullptr;
}

const Node* drop_multiples(Context::Impl& impl, const Node* e, const Node* n) {
  Terms terms;
  append_terms(e, terms);
  Terms rest;
  for (const Term& term : terms) {
    if (!impl.divides(n, impl.scaled(term.coefficient, term.monomial))) rest.push_back(term);
  }
  return rest.size() == terms.size() ? e : impl.sum_unsorted(rest);
}

const Node* rules_of_mod(Context::Impl& impl, const Node* e, const Node* n) {
  if (is_negative_lead(n)) {  // negate
    const Node* minus_e = impl.scale(e, -1);
    const Node* minus_n = impl.scale(n, -1);
    if (impl.failure != Context::Impl::Failure::none) return e;
    return impl.scale(impl.mod(minus_e, minus_n), -1);
  }
  if (impl.divides(n, e)) return impl.constant(0);  // exact
  if (const Node* q = constant_quotient(impl, e, n)) return impl.sub(e, impl.mul(q, n));
  const Context::Impl::Division parts = impl.divide(e, n, false);
  if (!parts.quotient->is_constant(0)) return impl.mod(parts.rest, n);  // extract
  const Node* rest = drop_multiples(impl, e, n);
  if (rest != e) return impl.mod(rest, n);  // by_fact
  if (const Node* stripped = strip_mods(impl, e, n)) return impl.mod(stripped, n);
  if (const Common common = find_common(impl, e, n); common.factor != nullptr) {  // cancel
    return impl.add(impl.mul(common.factor, impl.mod(common.dividend, common.divisor)),
                    common.rest);
  }
  return atom(impl, Kind::mod, e, n);
}

}  // namespace

Context::Impl::Division Context::Impl::divide(const Node* e, const Node* n, bool exact) {
  if (n->kind == Kind::add) return divide_by_sum(*this, e, n, exact);
  Terms terms;
  append_terms(e, terms);
  Terms quotient;
  Terms rest;
  for (const Term& term : terms) {
    const Node* monomial = nullptr;
    std::int64_t q = 0;
    std::int64_t left = term.coefficient;
    if (left != Range::kMin && divide_monomial(*this, term.monomial, n->monomial, monomial)) {
      const bool by_floor = term.monomial == nullptr;
      q = by_floor ? floor_div(left, n->value) : left / n->value;
      left = by_floor ? floor_mod(left, n->value) : left % n->value;
    }
    if (q != 0) quotient.push_back({q, monomial});
    if (left != 0) rest.push_back({left, term.monomial});
  }
  if (quotient.empty()) return {constant(0), e};
  return {sum_unsorted(quotient), sum_unsorted(rest)};
}

const Node* Context::Impl::exact_quotient(const Node* e, const Node* n) {
  if (n->is_constant(0)) return nullptr;
  const Division parts = divide(e, n, true);
  return parts.rest->is_constant(0) ? parts.quotient : nullptr;
}

const Node* Context::Impl::simplify_division(Kind kind, const Node* e, const Node* n) {
  const Op op = kind == Kind::floordiv ? Op::floordiv : Op::mod;
  if (const Node* known = find_memo(op, e, n)) return known;
  if (division_depth >= kDeepestDivision) return atom(*this, kind, e, n);
  ++division_depth;
  const Node* result = nullptr;
  {
    Attempt attempt(*this);
    result = kind == Kind::floordiv ? rules_of_floordiv(*this, e, n) : rules_of_mod(*this, e, n);
    if (attempt.failed()) result = atom(*this, kind, e, n);
  }
  --division_depth;
  keep_memo(op, e, n, result);
  return result;
}

const Node* Context::Impl::floordiv(const Node* e, const Node* n) {
  if (n->is_constant(0)) {
    failure = Failure::zero_division;
    return e;
  }
  if (n->is_constant(1) || e->is_constant(0)) return e;
  if (n->is_constant(-1)) return scale(e, -1);
  if (e == n) return constant(1);
  if (e->is_constant() && n->is_constant()) return constant(floor_div(e->value, n->value));
  return simplify_division(Kind::floordiv, e, n);
}

const Node* Context::Impl::mod(const Node* e, const Node* n) {
  if (n->is_constant(0)) {
    failure = Failure::zero_division;
    return e;
  }
  if (n->is_constant(1) || n->is_constant(-1) || e->is_constant(0) || e == n) return constant(0);
  if (e->is_constant() && n->is_constant()) return constant(floor_mod(e->value, n->value));
  return simplify_division(Kind::mod, e, n);
}

}  // namespace inkle::sym
