// Rules on sums that contain floordiv and mod, around the identity x == k*floordiv(x,k) + mod(x,k).
#include <algorithm>
#include <cstdlib>

#include "sym/expr.h"
#include "sym/node.h"

namespace inkle::sym {
namespace {

std::int64_t coefficient_in(const Terms& terms, const Node* monomial) {
  for (const Term& term : terms) {
    if (term.monomial == monomial) return term.coefficient;
  }
  return 0;
}

// The monomial without its i-th factor.
const Node* without(Context::Impl& impl, const Node* monomial, std::size_t i) {
  Factors rest;
  const std::span<const Expr> factors = factors_of(monomial);
  for (std::size_t k = 0; k < factors.size(); ++k) {
    if (k != i) rest.push_back(factors[k]);
  }
  return impl.monomial(rest);
}

bool is_atom(const Node* e) {
  return e->kind != Kind::constant && e->kind != Kind::add && e->kind != Kind::mul;
}

// A floordiv or mod in a sum, with what stands beside it in its term.
struct Site {
  const Terms& terms;
  const Node* atom;
  const Node* rest;
  std::int64_t coefficient;
};

// Appends scale * rest * e * atom (rest and atom may be null) term by term. Not by mul(), which
// would come back here for the same sum.
void append_product(Context::Impl& impl, Terms& out, std::int64_t scale, const Node* rest,
                    const Node* e, const Node* atom) {
  Terms terms;
  append_terms(e, terms);
  const Node* beside = impl.mul_monomials(rest, atom);
  for (const Term& term : terms) {
    out.push_back(
        {impl.mul_checked(term.coefficient, scale), impl.mul_monomials(term.monomial, beside)});
  }
}

void append_all(Terms& out, const Terms& terms) {
  for (const Term& term : terms) out.push_back(term);
}

// How often, with sign, `part` is contained in `terms`, the constant term left out of account.
std::int64_t copies_in(const Terms& terms, const Terms& part) {
  std::int64_t copies = 0;
  bool first = true;
  for (const Term& term : part) {
    if (term.monomial == nullptr) continue;
    const std::int64_t here = coefficient_in(terms, term.monomial) / term.coefficient;
    if (here == 0 || (!first && (here < 0) != (copies < 0))) return 0;
    if (first || std::llabs(here) < std::llabs(copies)) copies = here;
    first = false;
  }
  return copies;
}

// identity: with X = r*x, Q = r*k*floordiv(x,k), M = r*mod(x,k) there is X - Q - M == 0. A multiple
// of it is subtracted only where that leaves just one of the three: digits of a mixed radix, such
// as 8*Q + M, keep their bounds apart and stay.
const Node* apply_identity(Context::Impl& impl, const Terms& terms, const Node* x, const Node* k,
                           const Node* rest) {
  const Node* quotient = impl.floordiv(x, k);
  const Node* remainder = impl.mod(x, k);
  const bool exact = remainder->is_constant(0);
  if (!is_atom(quotient) || !(exact || is_atom(remainder))) return nullptr;
  Terms whole;
  Terms part;
  append_product(impl, whole, 1, rest, x, nullptr);
  append_product(impl, part, 1, rest, k, quotient);
  std::int64_t n = -copies_in(terms, part);
  if (!exact) {
    const std::int64_t whole_copies = copies_in(terms, whole);
    const std::int64_t left = -coefficient_in(terms, impl.mul_monomials(rest, remainder));
    if (n != left && n != whole_copies) {
      if (left != whole_copies) return nullptr;
      n = left;
    }
  }
  if (n == 0) return nullptr;
  Terms all;
  append_all(all, terms);
  append_product(impl, all, -n, rest, x, nullptr);
  append_product(impl, all, n, rest, k, quotient);
  append_product(impl, all, n, rest, remainder, nullptr);
  return impl.sum_unsorted(all);
}

// merge_mods: r*k*mod(floordiv(w,k),a) + r*mod(w,k) == r*mod(w, a*k) for a > 0.
const Node* merge_mods(Context::Impl& impl, const Site& site) {
  const Node* w = site.atom->operand(0);
  const Node* k = site.atom->operand(1);
  const Node* quotient = nullptr;
  for (const Term& term : site.terms) {
    if (term.monomial == nullptr || !term.monomial->has_division) continue;
    for (const Expr e : factors_of(term.monomial)) {
      const Node* outer = e.node();
      if (outer->kind != Kind::mod || outer == site.atom) continue;
      if (quotient == nullptr) quotient = impl.floordiv(w, k);
      const Node* a = outer->operand(1);
      if (outer->operand(0) != quotient || impl.interval(a).low < 0) continue;
      Terms high;
      append_product(impl, high, 1, site.rest, k, outer);
      const std::int64_t have = copies_in(site.terms, high);
      if (have == 0 || (have < 0) != (site.coefficient < 0)) continue;
      const bool fewer = std::llabs(have) < std::llabs(site.coefficient);
      const std::int64_t n = fewer ? have : site.coefficient;
      Terms all;
      append_all(all, site.terms);
      append_product(impl, all, -n, site.rest, k, outer);
      append_product(impl, all, -n, site.rest, site.atom, nullptr);
      append_product(impl, all, n, site.rest, impl.mod(w, impl.mul(a, k)), nullptr);
      return impl.sum_unsorted(all);
    }
  }
  return nullptr;
}

// exact: c*r*floordiv(x,d) == (c/g)*r*floordiv(x,d/g) for g = gcd(c,d), where d divides x.
const Node* reduce_exact(Context::Impl& impl, const Site& site) {
  const Node* x = site.atom->operand(0);
  const Node* d = site.atom->operand(1);
  if (!d->is_constant()) return nullptr;
  const std::int64_t g = gcd(site.coefficient, d->value);
  if (g <= 1 || !impl.divides(d, x)) return nullptr;
  const Node* smaller = impl.floordiv(x, impl.constant(d->value / g));
  Terms all;
  append_all(all, site.terms);
  append_product(impl, all, -site.coefficient, site.rest, site.atom, nullptr);
  append_product(impl, all, site.coefficient / g, site.rest, smaller, nullptr);
  return impl.sum_unsorted(all);
}

// The identity for r*k*floordiv(x,k), given c*rest*floordiv(x,n): r is found by k's leading term.
const Node* identity_beside(Context::Impl& impl, const Site& site, const Node* x, const Node* k) {
  if (k->is_constant()) {
    if (site.coefficient % k->value != 0) return nullptr;
    return apply_identity(impl, site.terms, x, k, site.rest);
  }
  const Node* lead = k->kind == Kind::add ? k->operand(0) : k;
  const Node* beside = impl.scaled(site.coefficient, site.rest);
  const Node* r = impl.divide(beside, lead, true).quotient;
  if (r->is_constant(0) || r->kind == Kind::add) return nullptr;
  return apply_identity(impl, site.terms, x, k, r->monomial);
}

const Node* at_floordiv(Context::Impl& impl, const Site& site) {
  if (const Node* better = reduce_exact(impl, site)) return better;
  const Node* x = site.atom->operand(0);
  const Node* n = site.atom->operand(1);
  if (const Node* better = identity_beside(impl, site, x, n)) return better;
  // floordiv(x, n) is the quotient by n/d of a floordiv(x, d) in the same sum.
  for (const Term& term : site.terms) {
    if (term.monomial == nullptr || !term.monomial->has_division) continue;
    for (const Expr e : factors_of(term.monomial)) {
      const Node* inner = e.node();
      if (inner->kind != Kind::floordiv || inner == site.atom || inner->operand(0) != x) continue;
      const Node* k = impl.exact_quotient(n, inner->operand(1));
      if (k == nullptr || impl.interval(k).low < 0) continue;
      if (const Node* better = identity_beside(impl, site, inner, k)) return better;
    }
  }
  return nullptr;
}

const Node* at_mod(Context::Impl& impl, const Site& site) {
  const Node* x = site.atom->operand(0);
  const Node* k = site.atom->operand(1);
  if (const Node* better = apply_identity(impl, site.terms, x, k, site.rest)) return better;
  return merge_mods(impl, site);
}

}  // namespace

const Node* Context::Impl::recombine(const Terms& terms) {
  if (recombine_depth >= kDeepestRecombine) return nullptr;
  for (const Term& term : terms) {
    if (term.coefficient == Range::kMin) return nullptr;  // has no negation
  }
  ++recombine_depth;
  const Node* result = nullptr;
  {
    Attempt attempt(*this);
    for (std::size_t i = 0; i < terms.size() && result == nullptr; ++i) {
      const Node* monomial = terms[i].monomial;
      if (monomial == nullptr || !monomial->has_division) continue;
      const std::span<const Expr> factors = factors_of(monomial);
      for (std::size_t f = 0; f < factors.size() && result == nullptr; ++f) {
        const Node* atom = factors[f].node();
        if (atom->kind != Kind::floordiv && atom->kind != Kind::mod) continue;
        const Site site{terms, atom, without(*this, monomial, f), terms[i].coefficient};
        if (atom->kind == Kind::floordiv) {
          result = at_floordiv(*this, site);
        } else if (terms.size() > 1) {
          result = at_mod(*this, site);
        }
      }
    }
    if (attempt.failed()) result = nullptr;
  }
  --recombine_depth;
  return result;
}

}  // namespace inkle::sym
