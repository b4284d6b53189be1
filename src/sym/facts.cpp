// What is known of an expression's value by itself: an interval and a divisor, both memoised.
#include <algorithm>

#include "sym/expr.h"
#include "sym/node.h"

namespace inkle::sym {
namespace {

// Interval ends: integers of 128 bits where everything beyond 2^90 is infinite.
__extension__ typedef __int128 Wide;
constexpr Wide kInfinity = Wide{1} << 90;

struct Ends {
  Wide low = -kInfinity;
  Wide high = kInfinity;
};

Wide clamp(Wide v) { return std::clamp(v, -kInfinity, kInfinity); }
bool is_infinite(Wide v) { return v >= kInfinity || v <= -kInfinity; }

Wide add_ends(Wide a, Wide b) {
  if (is_infinite(a)) return a;  // never both infinite with different signs: low with low only
  if (is_infinite(b)) return b;
  return clamp(a + b);
}

Wide mul_ends(Wide a, Wide b) {
  if (a == 0 || b == 0) return 0;
  if (is_infinite(a) || is_infinite(b)) return (a < 0) == (b < 0) ? kInfinity : -kInfinity;
  return clamp(a * b);
}

Wide floor_ends(Wide a, Wide b) {  // b > 0
  if (is_infinite(a)) return is_infinite(b) ? (a < 0 ? -kInfinity : kInfinity) : a;
  const Wide q = a / b;
  return a % b != 0 && a < 0 ? q - 1 : q;
}

Ends widen(Range r) {
  Ends out;
  if (r.low != Range::kMin) out.low = r.low;
  if (r.high != Range::kMax) out.high = r.high;
  return out;
}

Range narrow(Ends e) {
  Range out;
  if (e.low > Wide{Range::kMax}) e.low = Range::kMax;
  if (e.high < Wide{Range::kMin}) e.high = Range::kMin;
  if (e.low > Wide{Range::kMin}) out.low = static_cast<std::int64_t>(e.low);
  if (e.high < Wide{Range::kMax}) out.high = static_cast<std::int64_t>(e.high);
  return out;
}

Ends mul_intervals(Ends a, Ends b) {
  const Wide products[] = {mul_ends(a.low, b.low), mul_ends(a.low, b.high), mul_ends(a.high, b.low),
                           mul_ends(a.high, b.high)};
  return {*std::min_element(std::begin(products), std::end(products)),
          *std::max_element(std::begin(products), std::end(products))};
}

Wide power_end(Wide v, int exponent) {
  Wide out = v;
  for (int i = 1; i < exponent; ++i) out = mul_ends(out, v);
  return out;
}

Ends power(Ends a, int exponent) {
  const Ends ends{power_end(a.low, exponent), power_end(a.high, exponent)};
  if (exponent % 2 == 1 || a.low >= 0) return ends;
  if (a.high <= 0) return {ends.high, ends.low};
  return {0, std::max(ends.low, ends.high)};
}

// d > 0 throughout
Ends floordiv_positive(Ends x, Ends d) {
  const Wide ends[] = {floor_ends(x.low, d.low), floor_ends(x.low, d.high),
                       floor_ends(x.high, d.low), floor_ends(x.high, d.high)};
  return {*std::min_element(std::begin(ends), std::end(ends)),
          *std::max_element(std::begin(ends), std::end(ends))};
}

Ends negate(Ends e) { return {-e.high, -e.low}; }
Ends unite(Ends a, Ends b) { return {std::min(a.low, b.low), std::max(a.high, b.high)}; }

// The divisor is never 0 (the expression would have no value).
Ends floordiv_interval(Ends x, Ends d) {
  const Ends positive{std::max<Wide>(d.low, 1), d.high};
  const Ends negative{d.low, std::min<Wide>(d.high, -1)};
  if (positive.low > positive.high) {
    if (negative.low > negative.high) return {};
    return floordiv_positive(negate(x), negate(negative));
  }
  const Ends up = floordiv_positive(x, positive);
  if (negative.low > negative.high) return up;
  return unite(up, floordiv_positive(negate(x), negate(negative)));
}

Ends mod_positive(Ends x, Ends d) {
  if (x.low >= 0 && x.high < d.low) return x;
  Ends out{0, is_infinite(d.high) ? d.high : d.high - 1};
  if (x.low >= 0) out.high = std::min(out.high, x.high);
  return out;
}

Ends mod_interval(Ends x, Ends d) {
  const Ends positive{std::max<Wide>(d.low, 1), d.high};
  const Ends negative{d.low, std::min<Wide>(d.high, -1)};
  if (positive.low > positive.high) {
    if (negative.low > negative.high) return {};
    return negate(mod_positive(negate(x), negate(negative)));
  }
  const Ends up = mod_positive(x, positive);
  if (negative.low > negative.high) return up;
  return unite(up, negate(mod_positive(negate(x), negate(negative))));
}

Ends symbol_interval(Context::Impl& impl, const Node* e) {
  const SymbolInfo& info = impl.infos[e->symbol];
  Ends out = widen(info.range);
  if (!info.extent.is_null()) {
    const Ends extent = widen(impl.interval(info.extent.node()));
    out.low = std::max<Wide>(out.low, 0);
    if (!is_infinite(extent.high)) out.high = std::min(out.high, extent.high - 1);
  }
  return out;
}

Ends mul_interval(Context::Impl& impl, const Node* e) {
  Ends out{e->value, e->value};
  const std::span<const Expr> factors = factors_of(e->monomial);
  for (std::size_t i = 0; i < factors.size();) {
    int exponent = 0;
    const Expr factor = factors[i];
    for (; i < factors.size() && factors[i] == factor; ++i) ++exponent;
    out = mul_intervals(out, power(widen(impl.interval(factor.node())), exponent));
  }
  return out;
}

Ends compute_interval(Context::Impl& impl, const Node* e) {
  switch (e->kind) {
    case Kind::constant:
      return {e->value, e->value};
    case Kind::symbol:
      return symbol_interval(impl, e);
    case Kind::mul:
      return mul_interval(impl, e);
    case Kind::floordiv:
      return floordiv_interval(widen(impl.interval(e->operand(0))),
                               widen(impl.interval(e->operand(1))));
    case Kind::mod:
      return mod_interval(widen(impl.interval(e->operand(0))), widen(impl.interval(e->operand(1))));
    case Kind::add:
    case Kind::min:
    case Kind::max:
      break;
  }
  Ends out = widen(impl.interval(e->operand(0)));
  for (const Expr operand : e->all().subspan(1)) {
    const Ends next = widen(impl.interval(operand.node()));
    if (e->kind == Kind::add) {
      out = {add_ends(out.low, next.low), add_ends(out.high, next.high)};
    } else if (e->kind == Kind::min) {
      out = {std::min(out.low, next.low), std::min(out.high, next.high)};
    } else {
      out = {std::max(out.low, next.low), std::max(out.high, next.high)};
    }
  }
  return out;
}

std::int64_t mul_factors(std::int64_t a, std::int64_t b) {
  std::int64_t out = 0;
  return __builtin_mul_overflow(a, b, &out) ? std::max(a, b) : out;
}

std::int64_t compute_factor(Context::Impl& impl, const Node* e) {
  switch (e->kind) {
    case Kind::constant:
      return gcd(0, e->value);
    case Kind::symbol:
      return impl.infos[e->symbol].divisor;
    case Kind::mul: {
      std::int64_t out = 1;
      for (const Expr f : e->all()) out = mul_factors(out, impl.factor(f.node()));
      return out;
    }
    case Kind::floordiv: {
      const Node* by = e->operand(1);
      if (!by->is_constant() || by->value < 1) return 1;
      const std::int64_t whole = impl.factor(e->operand(0));
      return whole % by->value == 0 ? whole / by->value : 1;
    }
    case Kind::add:
    case Kind::mod:
    case Kind::min:
    case Kind::max:
      break;
  }
  std::int64_t out = 0;
  for (const Expr operand : e->all()) out = gcd(out, impl.factor(operand.node()));
  return out;
}

}  // namespace

std::optional<std::int64_t> evaluate(Kind kind, std::int64_t a, std::int64_t b) {
  std::int64_t out = 0;
  switch (kind) {
    case Kind::add:
      return __builtin_add_overflow(a, b, &out) ? std::nullopt : std::optional(out);
    case Kind::mul:
      return __builtin_mul_overflow(a, b, &out) ? std::nullopt : std::optional(out);
    case Kind::min:
      return std::min(a, b);
    case Kind::max:
      return std::max(a, b);
    case Kind::floordiv:
      if (b == 0 || (b == -1 && a == Range::kMin)) return std::nullopt;
      return floor_div(a, b);
    case Kind::mod:
      if (b == 0) return std::nullopt;
      return b == -1 ? 0 : floor_mod(a, b);
    case Kind::constant:
    case Kind::symbol:
      break;
  }
  return std::nullopt;
}

std::int64_t gcd(std::int64_t a, std::int64_t b) {
  if (a == Range::kMin) a = std::int64_t{1} << 62;
  if (b == Range::kMin) b = std::int64_t{1} << 62;
  if (a < 0) a = -a;
  if (b < 0) b = -b;
  while (b != 0) {
    const std::int64_t r = a % b;
    a = b;
    b = r;
  }
  return a;
}

Range Context::Impl::interval(const Node* e) {
  if (e->interval_epoch != epoch) {
    e->interval = narrow(compute_interval(*this, e));
    e->interval_epoch = epoch;
  }
  return e->interval;
}

std::int64_t Context::Impl::factor(const Node* e) {
  if (e->factor_epoch != epoch) {
    e->factor = compute_factor(*this, e);
    e->factor_epoch = epoch;
  }
  return e->factor;
}

bool Context::Impl::divides(const Node* k, const Node* e) {
  if (e->is_constant(0)) return true;
  if (k->is_constant()) return k->value != 0 && factor(e) % k->value == 0;
  if (k == e) return true;
  Attempt attempt(*this);
  Terms terms;
  append_terms(e, terms);
  // Term by term, then the sum as a whole (for divisors that are sums).
  bool all = true;
  for (const Term& term : terms) {
    const Node* one = scaled(term.coefficient, term.monomial);
    if (exact_quotient(one, k) != nullptr) continue;
    bool some = false;
    if (term.monomial != nullptr) {
      for (const Expr f : factors_of(term.monomial)) {
        some = some || (f.kind() == Kind::mod && divides(k, f.node()->operand(0)) &&
                        divides(k, f.node()->operand(1)));
      }
    }
    if (!some) all = false;
  }
  if (!all && k->kind == Kind::add) all = exact_quotient(e, k) != nullptr;
  return all && !attempt.failed();
}

}  // namespace inkle::sym
