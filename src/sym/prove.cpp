// Proofs of e >= 0: by the interval of e, else by putting extreme values for one factor of a term
// after the other: an iteration variable's 0 and extent - 1, a mod's 0 and divisor - 1, and so on.
//
// Why that is sound: write e == c*a + r for a factor a. If c >= 0 always, e >= c*low(a) + r; if
// c <= 0 always, e >= c*high(a) + r; whatever c and r have to do with a. The extents of the
// iteration variables in e are positive: else no value of e exists.
//
// Most claims that are tried are false somewhere, so sample points are looked at first.
#include <algorithm>

#include "sym/expr.h"
#include "sym/node.h"

namespace inkle::sym {
namespace {

constexpr int kProofDepth = 12;
constexpr int kProofBudget = 48;  // steps of one proof; index expressions need fewer than 20

bool prove(Context::Impl& impl, const Node* e, int depth);

bool prove_monomial(Context::Impl& impl, const Node* e, int depth) {
  bool negative = e->value < 0;
  const std::span<const Expr> factors = factors_of(e->monomial);
  for (std::size_t i = 0; i < factors.size();) {
    int exponent = 0;
    const Expr factor = factors[i];
    for (; i < factors.size() && factors[i] == factor; ++i) ++exponent;
    if (exponent % 2 == 0 || prove(impl, factor.node(), depth - 1)) continue;
    if (!prove(impl, impl.scale(factor.node(), -1), depth - 1)) return false;
    negative = !negative;
  }
  return !negative;
}

// e == cofactor * atom + rest
struct Linear {
  const Node* cofactor;
  const Node* rest;
};

Linear collect(Context::Impl& impl, const Node* e, const Node* atom) {
  Terms terms;
  append_terms(e, terms);
  Terms cofactor;
  Terms rest;
  for (const Term& term : terms) {
    Factors others;
    bool found = false;
    for (const Expr f : factors_of(term.monomial)) {
      if (!found && f.node() == atom) {
        found = true;
      } else {
        others.push_back(f);
      }
    }
    if (found) {
      cofactor.push_back({term.coefficient, impl.monomial(others)});
    } else {
      rest.push_back(term);
    }
  }
  return {impl.sum_unsorted(cofactor), impl.sum_unsorted(rest)};
}

bool prove_with(Context::Impl& impl, const Linear& linear, const Node* value, int depth) {
  return prove(impl, impl.add(impl.mul(linear.cofactor, value), linear.rest), depth - 1);
}

bool by_symbol(Context::Impl& impl, const Linear& linear, const Node* symbol, bool up, int depth) {
  const SymbolInfo& info = impl.infos[symbol->symbol];
  if (!up && !info.extent.is_null()) {
    const Node* last = impl.sub(info.extent.node(), impl.constant(1));
    return prove_with(impl, linear, last, depth);
  }
  const Range range = impl.interval(symbol);
  const std::int64_t end = up ? range.low : range.high;
  if (end == (up ? Range::kMin : Range::kMax)) return false;
  return prove_with(impl, linear, impl.constant(end), depth);
}

// Of q == floordiv(x,k) with k > 0: q + r >= 0 iff x + k*r >= 0, and r - q >= 0 iff x < k*(r+1),
// as all are integers; for other cofactors x-k+1 <= k*q <= x.
bool by_floordiv(Context::Impl& impl, const Linear& linear, const Node* atom, bool up, int depth) {
  const Node* x = atom->operand(0);
  const Node* k = atom->operand(1);
  if (!prove(impl, k, depth - 1)) return false;
  const Node* before = impl.sub(k, impl.constant(1));
  const Node* rest = impl.mul(linear.rest, k);
  if (linear.cofactor->is_constant(1)) return prove(impl, impl.add(x, rest), depth - 1);
  if (linear.cofactor->is_constant(-1)) {
    return prove(impl, impl.sub(impl.add(rest, before), x), depth - 1);
  }
  return prove_with(impl, {linear.cofactor, rest}, up ? impl.sub(x, before) : x, depth);
}

bool by_mod(Context::Impl& impl, const Linear& linear, const Node* atom, bool up, int depth) {
  const Node* x = atom->operand(0);
  const Node* k = atom->operand(1);
  if (!prove(impl, k, depth - 1)) return false;
  if (up) return prove_with(impl, linear, impl.constant(0), depth);
  if (prove_with(impl, linear, impl.sub(k, impl.constant(1)), depth)) return true;
  return prove(impl, x, depth - 1) && prove_with(impl, linear, x, depth);
}

// `up`: the cofactor is >= 0, so a lower bound of the atom is wanted; else an upper one.
bool by_atom(Context::Impl& impl, const Linear& linear, const Node* atom, bool up, int depth) {
  switch (atom->kind) {
    case Kind::symbol:
      return by_symbol(impl, linear, atom, up, depth);
    case Kind::floordiv:
      return by_floordiv(impl, linear, atom, up, depth);
    case Kind::mod:
      return by_mod(impl, linear, atom, up, depth);
    case Kind::min:
    case Kind::max: {
      const auto holds = [&](Expr operand) {
        return prove_with(impl, linear, operand.node(), depth);
      };
      const bool every = (atom->kind == Kind::min) == up;
      const std::span<const Expr> operands = atom->all();
      return every ? std::all_of(operands.begin(), operands.end(), holds)
                   : std::any_of(operands.begin(), operands.end(), holds);
    }
    case Kind::constant:
    case Kind::add:
    case Kind::mul:
      break;
  }
  return false;
}

// Whether extreme values of the atom can tell more than the interval of the sum did.
bool is_worth(Context::Impl& impl, const Node* atom, const Node* cofactor) {
  if (atom->kind != Kind::symbol) return true;
  const Expr extent = impl.infos[atom->symbol].extent;
  return !cofactor->is_constant() || (!extent.is_null() && !extent.is_constant());
}

bool prove_sum(Context::Impl& impl, const Node* e, int depth) {
  // Iteration variables first, then the other atoms, then sizes.
  Factors atoms;
  const auto priority = [&](Expr a) {
    if (a.kind() != Kind::symbol) return 1;
    return impl.infos[a.node()->symbol].extent.is_null() ? 2 : 0;
  };
  for (const Expr term : e->all()) {
    for (const Expr f : factors_of(term.node()->monomial)) {
      if (f.kind() == Kind::add) continue;
      if (std::find(atoms.begin(), atoms.end(), f) == atoms.end()) atoms.push_back(f);
    }
  }
  std::stable_sort(atoms.begin(), atoms.end(),
                   [&](Expr a, Expr b) { return priority(a) < priority(b); });
  for (const Expr atom : atoms) {
    const Linear linear = collect(impl, e, atom.node());
    if (!is_worth(impl, atom.node(), linear.cofactor)) continue;
    if (prove(impl, linear.cofactor, depth - 1)) {
      if (by_atom(impl, linear, atom.node(), true, depth)) return true;
    } else if (prove(impl, impl.scale(linear.cofactor, -1), depth - 1)) {
      if (by_atom(impl, linear, atom.node(), false, depth)) return true;
    }
    if (impl.proof_budget <= 0) return false;
  }
  return false;
}

bool prove(Context::Impl& impl, const Node* e, int depth) {
  const Range range = impl.interval(e);
  if (range.low >= 0) return true;
  if (range.high < 0 || depth <= 0 || impl.proof_budget-- <= 0) return false;
  const std::vector<const Node*>& positive = impl.positive;
  if (std::find(positive.begin(), positive.end(), e) != positive.end()) return true;
  const auto holds = [&](Expr operand) { return prove(impl, operand.node(), depth - 1); };
  const std::span<const Expr> operands = e->all();
  switch (e->kind) {
    case Kind::constant:
    case Kind::symbol:
      return false;
    case Kind::add:
      return prove_sum(impl, e, depth);
    case Kind::mul:
      return prove_monomial(impl, e, depth);
    case Kind::floordiv:
      return holds(operands[0]) && holds(operands[1]);
    case Kind::mod:
      return holds(operands[1]);
    case Kind::min:
      return std::all_of(operands.begin(), operands.end(), holds);
    case Kind::max:
      return std::any_of(operands.begin(), operands.end(), holds);
  }
  return false;
}

void assume_extents(Context::Impl& impl, Expr e) {
  for (const Expr symbol : symbols(e)) {
    const Expr extent = impl.infos[symbol.node()->symbol].extent;
    if (extent.is_null() || extent.is_constant()) continue;
    impl.positive.push_back(extent.node());
    impl.positive.push_back(impl.sub(extent.node(), impl.constant(1)));
  }
}

}  // namespace

bool Context::Impl::nonneg(const Node* e) {
  const Range range = interval(e);
  if (range.low >= 0) return true;
  if (range.high < 0 || proof_depth >= kDeepestProof) return false;
  if (e->kind == Kind::symbol || refutes_at_most(constant(0), e)) return false;
  if (const Node* known = find_memo(Op::nonneg, e, e)) return known->value == 1;
  const int outer_budget = proof_budget;
  proof_budget = kProofBudget;
  std::vector<const Node*> outer_positive;
  std::swap(positive, outer_positive);
  ++proof_depth;
  bool proved = false;
  {
    Attempt attempt(*this);
    if ((e->symbol_filter & extent_filter) != 0) assume_extents(*this, Expr(e));
    proved = prove(*this, e, kProofDepth) && !attempt.failed();
  }
  --proof_depth;
  proof_budget = outer_budget;
  std::swap(positive, outer_positive);
  keep_memo(Op::nonneg, e, e, constant(proved ? 1 : 0));
  return proved;
}

bool Context::Impl::at_most(const Node* a, const Node* b) {
  if (a == b) return true;
  const Range left = interval(a);
  const Range right = interval(b);
  // The ends of 64 bits stand for whatever lies beyond.
  const bool is_bounded = left.high != Range::kMax && right.low != Range::kMin;
  if (is_bounded && left.high <= right.low) return true;
  if (left.low > right.high || refutes_at_most(a, b)) return false;
  Attempt attempt(*this);
  const Node* difference = sub(b, a);
  return !attempt.failed() && nonneg(difference);
}

bool Context::Impl::below(const Node* a, const Node* b) {
  if (a == b) return false;
  Attempt attempt(*this);
  const Node* next = add(a, constant(1));
  return !attempt.failed() && at_most(next, b);
}

bool Context::Impl::in_range(const Node* e, const Node* n) { return nonneg(e) && below(e, n); }

}  // namespace inkle::sym
