// Sums and products in normal form: sorted monomials with integer coefficients.
#include <algorithm>

#include "base/error.h"
#include "sym/expr.h"
#include "sym/node.h"

namespace inkle::sym {
namespace {

// A product of sums that would give more terms stays a product of opaque sums.
constexpr std::size_t kMostTerms = 64;

int rank(Kind kind) {
  switch (kind) {
    case Kind::symbol:
      return 0;
    case Kind::floordiv:
      return 1;
    case Kind::mod:
      return 2;
    case Kind::min:
      return 3;
    case Kind::max:
      return 4;
    case Kind::add:
      return 5;
    case Kind::mul:
      return 6;
    case Kind::constant:
      return 7;
  }
  return 8;
}

int compare_symbols(const Node* a, const Node* b) {
  const Context::Impl& impl = a->context->impl();
  const std::uint64_t ka = impl.name_keys[a->symbol];
  const std::uint64_t kb = impl.name_keys[b->symbol];
  if (ka != kb) return ka < kb ? -1 : 1;
  return impl.names[a->symbol].compare(impl.names[b->symbol]);
}

int compare_lists(std::span<const Expr> a, std::span<const Expr> b) {
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    if (a[i] == b[i]) continue;
    return compare_atoms(a[i].node(), b[i].node());
  }
  if (a.size() == b.size()) return 0;
  return a.size() > b.size() ? -1 : 1;  // the longer one first
}

}  // namespace

int compare_atoms(const Node* a, const Node* b) {
  if (a == b) return 0;
  if (a->kind != b->kind) return rank(a->kind) < rank(b->kind) ? -1 : 1;
  if (a->kind == Kind::symbol) return compare_symbols(a, b);
  if (a->kind == Kind::constant) return a->value < b->value ? -1 : 1;
  return compare_lists(a->all(), b->all());
}

std::span<const Expr> factors_of(const Node* const& monomial) {
  if (monomial == nullptr) return {};
  if (monomial->kind == Kind::mul) return monomial->all();
  static_assert(sizeof(Expr) == sizeof(const Node*));  // NOLINT(bugprone-sizeof-expression)
  return {reinterpret_cast<const Expr*>(&monomial), 1};
}

int compare_monomials(const Node* a, const Node* b) {
  if (a == b) return 0;
  if (a == nullptr) return 1;
  if (b == nullptr) return -1;
  return compare_lists(factors_of(a), factors_of(b));
}

void append_terms(const Node* node, Terms& out) {
  if (node->kind == Kind::add) {
    for (const Expr e : node->all()) out.push_back({e.node()->value, e.node()->monomial});
  } else if (!node->is_constant(0)) {
    out.push_back({node->value, node->monomial});
  }
}

std::int64_t Context::Impl::add_checked(std::int64_t a, std::int64_t b) {
  std::int64_t out = 0;
  if (__builtin_add_overflow(a, b, &out)) failure = Failure::overflow;
  return out;
}

std::int64_t Context::Impl::mul_checked(std::int64_t a, std::int64_t b) {
  std::int64_t out = 0;
  if (__builtin_mul_overflow(a, b, &out)) failure = Failure::overflow;
  return out;
}

const Node* Context::Impl::monomial(Factors& sorted) {
  if (sorted.empty()) return nullptr;
  if (sorted.size() == 1) return sorted[0].node();
  return intern(Kind::mul, {sorted.begin(), sorted.size()});
}

const Node* Context::Impl::scaled(std::int64_t coefficient, const Node* monomial) {
  if (monomial == nullptr || coefficient == 0) return constant(coefficient);
  if (coefficient == 1) return monomial;
  Factors factors;
  factors.push_back(Expr(constant(coefficient)));
  for (const Expr e : factors_of(monomial)) factors.push_back(e);
  return intern(Kind::mul, {factors.begin(), factors.size()}, coefficient, monomial);
}

const Node* Context::Impl::sum(Terms& sorted) {
  for (const Term& term : sorted) {
    if (term.monomial == nullptr || !term.monomial->has_division) continue;
    if (const Node* better = recombine(sorted)) return better;
    break;
  }
  if (sorted.empty()) return constant(0);
  if (sorted.size() == 1) return scaled(sorted[0].coefficient, sorted[0].monomial);
  InlineVector<Expr, 12> operands;
  for (const Term& term : sorted) operands.push_back(Expr(scaled(term.coefficient, term.monomial)));
  return intern(Kind::add, {operands.begin(), operands.size()});
}

const Node* Context::Impl::sum_unsorted(Terms& terms) {
  std::sort(terms.begin(), terms.end(), [](const Term& a, const Term& b) {
    return compare_monomials(a.monomial, b.monomial) < 0;
  });
  std::size_t out = 0;
  for (std::size_t i = 0; i < terms.size();) {
    Term merged = terms[i++];
    for (; i < terms.size() && terms[i].monomial == merged.monomial; ++i) {
      merged.coefficient = add_checked(merged.coefficient, terms[i].coefficient);
    }
    if (merged.coefficient != 0) terms[out++] = merged;
  }
  terms.resize(out);
  return sum(terms);
}

const Node* Context::Impl::combine(const Node* a, const Node* b, std::int64_t scale) {
  Terms left;
  Terms right;
  append_terms(a, left);
  append_terms(b, right);
  Terms out;
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < left.size() || j < right.size()) {
    const int order = i == left.size()    ? 1
                      : j == right.size() ? -1
                                          : compare_monomials(left[i].monomial, right[j].monomial);
    Term term;
    if (order <= 0) term = left[i++];
    if (order >= 0) {
      term.monomial = right[j].monomial;
      term.coefficient = add_checked(term.coefficient, mul_checked(right[j++].coefficient, scale));
    }
    if (term.coefficient != 0) out.push_back(term);
  }
  return sum(out);
}

const Node* Context::Impl::add(const Node* a, const Node* b) {
  if (a->is_constant(0)) return b;
  if (b->is_constant(0)) return a;
  if (a->is_constant() && b->is_constant()) return constant(add_checked(a->value, b->value));
  if (a->id > b->id) std::swap(a, b);
  if (const Node* known = find_memo(Op::add, a, b)) return known;
  const Node* result = combine(a, b, 1);
  keep_memo(Op::add, a, b, result);
  return result;
}

const Node* Context::Impl::sub(const Node* a, const Node* b) {
  if (a == b) return constant(0);
  if (b->is_constant(0)) return a;
  if (const Node* known = find_memo(Op::sub, a, b)) return known;
  const Node* result = combine(a, b, -1);
  keep_memo(Op::sub, a, b, result);
  return result;
}

const Node* Context::Impl::scale(const Node* a, std::int64_t c) {
  if (c == 1) return a;
  if (c == 0) return constant(0);
  if (a->is_constant()) return constant(mul_checked(a->value, c));
  Terms terms;
  append_terms(a, terms);
  for (Term& term : terms) term.coefficient = mul_checked(term.coefficient, c);
  return sum(terms);
}

const Node* Context::Impl::mul_monomials(const Node* a, const Node* b) {
  if (a == nullptr) return b;
  if (b == nullptr) return a;
  const std::span<const Expr> left = factors_of(a);
  const std::span<const Expr> right = factors_of(b);
  Factors out;
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < left.size() || j < right.size()) {
    const bool take_left = j == right.size() ||
                           (i < left.size() && compare_atoms(left[i].node(), right[j].node()) <= 0);
    out.push_back(take_left ? left[i++] : right[j++]);
  }
  return monomial(out);
}

const Node* Context::Impl::mul(const Node* a, const Node* b) {
  if (a->is_constant()) return scale(b, a->value);
  if (b->is_constant()) return scale(a, b->value);
  if (a->id > b->id) std::swap(a, b);
  if (const Node* known = find_memo(Op::mul, a, b)) return known;
  Terms left;
  Terms right;
  append_terms(a, left);
  append_terms(b, right);
  Terms out;
  if (left.size() > 1 && right.size() > 1 && left.size() * right.size() > kMostTerms) {
    out.push_back({1, mul_monomials(a, b)});
  } else {
    for (const Term& x : left) {
      for (const Term& y : right) {
        out.push_back(
            {mul_checked(x.coefficient, y.coefficient), mul_monomials(x.monomial, y.monomial)});
      }
    }
  }
  const Node* result = sum_unsorted(out);
  keep_memo(Op::mul, a, b, result);
  return result;
}

}  // namespace inkle::sym
