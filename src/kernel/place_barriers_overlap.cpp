#include "kernel/place_barriers_overlap.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "sym/symbols.h"

namespace inkle::kernel {
namespace {

using loop::Opcode;

constexpr std::int64_t kWarp = 32;

std::span<const Expr> terms_of(const Expr& e) {
  return e.kind() == sym::Kind::add ? e.operands() : std::span(&e, 1);
}

// A term of a sum as a constant times an expression: a null one where it is a constant.
struct Multiple {
  std::int64_t times = 1;
  Expr of;
};
Multiple multiple_of(Expr term) {
  if (const auto constant = term.constant()) return {*constant, {}};
  if (term.kind() != sym::Kind::mul) return {1, term};
  const std::span<const Expr> factors = term.operands();
  const auto constant = factors[0].constant();
  return constant && factors.size() == 2 ? Multiple{*constant, factors[1]} : Multiple{1, term};
}

// The factor of an axis in an index, if the element says which position of the axis it is of: the
// axis is a digit of the index that no other term reaches. What is left of the digit is less than
// its unit, and all other terms are multiples of what comes after it. Else 0.
std::int64_t unit_of(Expr index, const ThreadAxis& axis) {
  std::int64_t unit = 0;
  for (const Expr term : terms_of(index)) {
    if (!sym::contains(term, axis.variable)) continue;
    const Multiple multiple = multiple_of(term);
    if (unit != 0 || multiple.of != axis.variable || multiple.times <= 0) return 0;
    unit = multiple.times;
  }
  if (unit == 0) return 0;
  std::int64_t rest = 0;
  for (const Expr term : terms_of(index)) {
    if (sym::contains(term, axis.variable) || sym::divides(unit * axis.extent, term)) continue;
    const sym::Range range = sym::bounds(term);
    if (range.low < 0 || range.high >= unit) return 0;
    rest += range.high;
    if (rest >= unit) return 0;
  }
  return unit;
}

// Expressions that are the same at both accesses if they touch one element.
using Same = std::vector<std::pair<Expr, Expr>>;

// The digits of an index below a radix, and those from it on.
struct Digits {
  Expr high, low;
};
Digits digits_of(Expr index, Expr radix) {
  sym::Context& context = index.context();
  Digits out{context.constant(0), context.constant(0)};
  for (const Expr term : terms_of(index)) {
    if (sym::divides(radix, term)) {
      out.high = out.high + sym::floordiv(term, radix);
    } else {
      out.low = out.low + term;
    }
  }
  return out;
}

// The largest power of two, up to that of a vector of bytes, that divides both.
std::int64_t unit_of_both(Expr a, Expr b) {
  std::int64_t unit = 64;
  while (unit > 1 && !(sym::divides(unit, a) && sym::divides(unit, b))) unit /= 2;
  return unit;
}

// How many times a sum stands in an expression, by the first symbol of it; 0 if that is not known.
std::int64_t times_in(Expr e, Expr sum) {
  const sym::Symbols symbols = sym::symbols(sum);
  if (symbols.empty()) return 0;
  const auto of_e = sym::stride(e, symbols[0]), of_sum = sym::stride(sum, symbols[0]);
  if (!of_e || !of_sum || !of_e->constant() || of_sum->constant().value_or(0) <= 0) return 0;
  return *of_e->constant() / *of_sum->constant();
}

// Whether guards or ranges say that 0 <= e < radix.
bool is_below(Expr e, Expr radix, const Touch& touch) {
  if (sym::bounds(e).low < 0) return false;
  if (sym::less(e, radix) == true) return true;
  if (e.kind() == sym::Kind::floordiv && sym::bounds(e.operands()[1]).low > 0) {
    return is_below(e.operands()[0], radix * e.operands()[1], touch);
  }
  return std::ranges::any_of(touch.guards, [&](const Guard& guard) {
    const std::int64_t times = guard.is_equality ? 0 : times_in(e, guard.expanded);
    if (times <= 0 || guard.bound * times != radix) return false;
    // Sum and bound are multiples of a unit, so what is less than a unit reaches no further.
    const sym::Range rest = sym::bounds(e - guard.expanded * times);
    return rest.low >= 0 && rest.high < unit_of_both(guard.expanded, guard.bound) * times;
  });
}

// What a guard says an expression is; none if it may be several values.
std::optional<std::int64_t> value_of(const Guard& guard) {
  const auto bound = guard.bound.constant();
  if (!bound) return std::nullopt;
  if (guard.is_equality) return bound;
  if (sym::bounds(guard.expanded).low == *bound - 1) return *bound - 1;
  return std::nullopt;
}

// Of an index of both accesses by a radix that guards of both have; nothing where one is not known
// to have such digits.
void split(std::pair<Expr, Expr> index, Expr radix, const Touch& a, const Touch& b, Same& parts) {
  const Digits of_a = digits_of(index.first, radix);
  const Digits of_b = digits_of(index.second, radix);
  if (of_a.high.is_constant(0) || of_b.high.is_constant(0)) return;
  if (!is_below(of_a.low, radix, a) || !is_below(of_b.low, radix, b)) return;
  parts.emplace_back(of_a.high, of_b.high);
  parts.emplace_back(of_a.low, of_b.low);
}

// e mod n of both, where the parts that are not known are the same and the difference is not 0.
bool has_other_remainder(Expr a, Expr b) {
  if (a.kind() != sym::Kind::mod || b.kind() != sym::Kind::mod) return false;
  const auto divisor = a.operands()[1].constant();
  if (!divisor || a.operands()[1] != b.operands()[1]) return false;
  const auto difference = (a.operands()[0] - b.operands()[0]).constant();
  return difference && *difference % *divisor != 0;
}

}  // namespace

void add_guards(const Kernel& kernel, ValueId condition, std::vector<Guard>& guards) {
  const OperationId id = kernel.values[condition].definition;
  if (id == kNone || kernel[id].op != Op::compute) return;
  const Opcode opcode = kernel.detail<Compute>(id).opcode;
  const Values& operands = kernel[id].operands;
  if (opcode == Opcode::bit_and) {
    for (const ValueId v : operands) add_guards(kernel, v, guards);
    return;
  }
  if (opcode != Opcode::equal && opcode != Opcode::less) return;
  const OperationId left = kernel.values[operands[0]].definition;
  const OperationId right = kernel.values[operands[1]].definition;
  if (left == kNone || right == kNone || kernel[left].op != Op::index) return;
  const Expr expression = kernel.detail<IndexOf>(left).expression;
  Expr bound;
  if (kernel[right].op == Op::constant) {
    bound = expression.context().constant(kernel.detail<Immediate>(right).integer);
  } else if (kernel[right].op == Op::index) {
    bound = kernel.detail<IndexOf>(right).expression;
  }
  if (!bound.is_null()) guards.push_back({expression, opcode == Opcode::equal, bound});
}

Reach Overlap::reach(const Touch& a, const Touch& b, const SharedSymbols& shared) {
  // Threads that differ in no axis outside of the span's.
  const auto span_of = [&](const auto& is_same) {
    for (std::size_t i = threads_.size(); i-- > 0;) {
      if (!is_same(i)) return threads_[i].stride * threads_[i].extent;
    }
    return std::int64_t{1};
  };
  const auto is_same = [&](std::size_t axis) { return is_determined(axis, a, b); };
  if (span_of(is_same) == 1 || is_disjoint(a, b, shared)) return 0;
  const Names pins_a = pins(a), pins_b = pins(b);
  const Same parts = determined_by(pinned(a, pins_a), pinned(b, pins_b));
  const auto is_same_by_guards = [&](std::size_t axis) {
    // Pinned at both, it has its least value at both.
    const auto is_axis = [&](const auto& pin) { return pin.first == threads_[axis].variable; };
    if (std::ranges::any_of(pins_a, is_axis) && std::ranges::any_of(pins_b, is_axis)) return true;
    return std::ranges::any_of(parts, [&](const auto& part) {
      const std::int64_t of_a = unit(part.first, axis);
      return of_a != 0 && of_a == unit(part.second, axis);
    });
  };
  const std::int64_t span =
      span_of([&](std::size_t axis) { return is_same(axis) || is_same_by_guards(axis); });
  if (span == 1 || is_disjoint_narrowed(a, b, shared)) return 0;
  const auto lanes = static_cast<std::uint64_t>(span);
  return span <= kWarp && std::has_single_bit(lanes) ? std::countr_zero(lanes) : kBlockReach;
}

bool Overlap::is_one_thread(const Touch& touch) {
  for (std::size_t i = 0; i < threads_.size(); ++i) {
    if (!is_determined(i, touch, touch)) return false;
  }
  return true;
}

std::int64_t Overlap::unit(Expr index, std::size_t axis) {
  const auto [at, is_new] = units_at_.add(index);
  if (is_new) {
    *at = static_cast<std::uint32_t>(units_.size());
    for (const ThreadAxis& a : threads_) units_.push_back(unit_of(index, a));
  }
  return units_[*at + axis];
}

// Whether threads that touch one element by both have one position on the axis.
bool Overlap::is_determined(std::size_t axis, const Touch& a, const Touch& b) {
  for (std::size_t d = 0; d < a.expanded.size() && d < b.expanded.size(); ++d) {
    const std::int64_t of_a = unit(a.expanded[d], axis);
    if (of_a != 0 && of_a == unit(b.expanded[d], axis)) return true;
  }
  // Only the threads of one position come to both.
  for (const Guard& ga : a.guards) {
    if (!ga.is_equality) continue;
    for (const Guard& gb : b.guards) {
      if (!gb.is_equality || ga.expression != gb.expression || ga.bound != gb.bound) continue;
      if (unit(ga.expression, axis) != 0) return true;
    }
  }
  return false;
}

sym::Range Overlap::range_of_symbol(Expr symbol, const Touch& touch) const {
  const sym::SymbolInfo& known = context_.info(symbol);
  sym::Range range = known.range;
  const auto below = [&](Expr bound) {
    const std::int64_t high = sym::bounds(bound).high;
    if (high != sym::Range::kMax) range.high = std::min(range.high, high - 1);
  };
  if (!known.extent.is_null()) {
    range.low = std::max<std::int64_t>(range.low, 0);
    below(known.extent);
  }
  for (const Guard& guard : touch.guards) {
    if (guard.expression != symbol) continue;
    const auto constant = guard.bound.constant();
    if (guard.is_equality && constant) range = {*constant, *constant};
    if (!guard.is_equality) below(guard.bound);
  }
  return range.low > range.high ? known.range : range;  // the first: unreachable
}

sym::SymbolInfo Overlap::facts(Expr symbol, const Touch& touch, const SharedSymbols& shared) const {
  const sym::SymbolInfo& known = context_.info(symbol);
  sym::SymbolInfo facts{range_of_symbol(symbol, touch), known.divisor, {}, {}};
  const auto below = [&](Expr bound) {
    const bool is_shared = sym::all_symbols(bound, [&](Expr s) { return shared.contains(s); });
    if (is_shared && facts.range.low >= 0) facts.extent = bound;
  };
  if (!known.extent.is_null()) below(known.extent);
  for (const Guard& guard : touch.guards) {
    if (guard.expression == symbol && !guard.is_equality) below(guard.bound);
  }
  return facts;
}

sym::Range Overlap::range(Expr index, const Touch& touch, const SharedSymbols& shared) const {
  sym::Range out{0, 0};
  for (const Expr term : terms_of(index)) {
    const Multiple multiple = multiple_of(term);
    sym::Range one{1, 1};
    if (!multiple.of.is_null()) {
      const bool is_own = multiple.of.kind() == sym::Kind::symbol && !shared.contains(multiple.of);
      one = is_own ? range_of_symbol(multiple.of, touch) : sym::bounds(multiple.of);
      if (one.low == sym::Range::kMin || one.high == sym::Range::kMax) return {};
    }
    if (multiple.times < 0) std::swap(one.low, one.high);
    std::int64_t low = 0, high = 0;
    if (__builtin_mul_overflow(one.low, multiple.times, &low) ||
        __builtin_mul_overflow(one.high, multiple.times, &high) ||
        __builtin_add_overflow(out.low, low, &out.low) ||
        __builtin_add_overflow(out.high, high, &out.high)) {
      return {};
    }
  }
  return out;
}

// The index with symbols of its own for what may be another value at the other access, within what
// guards leave of them.
Expr Overlap::renamed(Expr e, const Touch& touch, const SharedSymbols& shared, Names& names) const {
  for (const Expr s : sym::symbols(e)) {
    const auto is_it = [&](const auto& pair) { return pair.first == s; };
    if (shared.contains(s) || std::ranges::any_of(names, is_it)) continue;
    names.emplace_back(s, sym::fresh(context_, facts(s, touch, shared)));
  }
  return sym::substitute(e, names);
}

std::size_t Overlap::Hash::operator()(const Question& question) const {
  std::uint64_t hash = 0;
  for (const std::uintptr_t part : question.parts) {
    hash = (hash ^ part) * 0x9e3779b97f4a7c15ULL;
    hash ^= hash >> 29;
  }
  return hash;
}

void Overlap::add(const Touch& touch, Question& question) {
  const auto of = [](Expr e) { return reinterpret_cast<std::uintptr_t>(e.node()); };
  question.parts.push_back(touch.indices.size());
  for (const Expr e : touch.indices) question.parts.push_back(of(e));
  for (const Guard& guard : touch.guards) {
    question.parts.insert(question.parts.end(),
                          {of(guard.expression), guard.is_equality ? 1U : 0U, of(guard.bound)});
  }
}

// States of one collective lie in memories of their own, at the same indices.
bool Overlap::is_disjoint(const Touch& a, const Touch& b, const SharedSymbols& shared) {
  for (std::size_t d = 0; d < a.indices.size() && d < b.indices.size(); ++d) {
    const sym::Range of_a = range(a.indices[d], a, shared);
    const sym::Range of_b = range(b.indices[d], b, shared);
    if (of_a.high < of_b.low || of_b.high < of_a.low) return true;
  }
  Question question;
  question.parts.push_back(shared.version());
  add(a, question);
  question.parts.push_back(0);
  add(b, question);
  const auto [at, is_new] = disjoint_.try_emplace(std::move(question), false);
  if (is_new) at->second = find_disjoint(a, b, shared);
  return at->second;
}

bool Overlap::find_disjoint(const Touch& a, const Touch& b, const SharedSymbols& shared) const {
  Names names_a, names_b;
  for (std::size_t d = 0; d < a.indices.size() && d < b.indices.size(); ++d) {
    const Expr ea = renamed(a.indices[d], a, shared, names_a);
    const Expr eb = renamed(b.indices[d], b, shared, names_b);
    if (has_other_remainder(ea, eb)) return true;
    // The way round that is likely first: a proof that fails takes long.
    const bool is_a_first = sym::bounds(ea).low < sym::bounds(eb).low;
    const auto [low, high] = is_a_first ? std::pair(ea, eb) : std::pair(eb, ea);
    if (sym::less(low, high) == true || sym::less(high, low) == true) return true;
  }
  return false;
}

Overlap::Names Overlap::pins(const Touch& touch) const {
  Names names;
  for (const Guard& guard : touch.guards) {
    const auto bound = guard.bound.constant();
    if (guard.is_equality || !bound) continue;
    for (const Expr s : sym::symbols(guard.expanded)) {
      const auto step = sym::stride(guard.expanded, s);
      if (!step || step->constant().value_or(0) <= 0) continue;
      const sym::Range rest = sym::bounds(guard.expanded - s * *step);
      const std::int64_t low = sym::bounds(s).low;
      if (rest.low >= 0 && low >= 0 && rest.low + (low + 1) * *step->constant() >= *bound) {
        names.emplace_back(s, context_.constant(low));
      }
    }
  }
  return names;
}

Touch Overlap::pinned(Touch touch, const Names& names) {
  if (names.empty()) return touch;
  const std::span<Expr> expanded = lists_.copy(touch.expanded);
  for (Expr& e : expanded) e = sym::substitute(e, names);
  const std::span<Guard> guards = lists_.copy(touch.guards);
  for (Guard& g : guards) g.expanded = sym::substitute(g.expanded, names);
  touch.expanded = expanded;
  touch.guards = guards;
  return touch;
}

std::vector<std::pair<Expr, Expr>> Overlap::determined_by(const Touch& a, const Touch& b) const {
  Same parts;
  for (std::size_t d = 0; d < a.expanded.size() && d < b.expanded.size(); ++d) {
    parts.emplace_back(a.expanded[d], b.expanded[d]);
  }
  for (const Guard& guard : a.guards) {
    const auto is_size = [&](Expr s) { return std::ranges::find(sizes_, s) != sizes_.end(); };
    if (guard.is_equality || !sym::all_symbols(guard.bound, is_size)) continue;
    const std::size_t count = parts.size();
    for (std::size_t i = 0; i < count; ++i) {
      const std::int64_t times = times_in(parts[i].first, guard.expanded);
      if (times > 0) split(parts[i], guard.bound * times, a, b, parts);
    }
  }
  for (const Guard& ga : a.guards) {
    const auto value = value_of(ga);
    if (!value) continue;
    for (const Guard& gb : b.guards) {
      if (value_of(gb) == value) parts.emplace_back(ga.expanded, gb.expanded);
    }
  }
  return parts;
}

// The index with one symbol for what a guard bounds.
Expr Overlap::narrowed(Expr index, const Touch& touch) const {
  for (const Guard& guard : touch.guards) {
    const auto bound = guard.bound.constant();
    if (guard.is_equality || !bound) continue;
    const std::int64_t times = times_in(index, guard.expression);
    const Expr rest = index - guard.expression * times;
    const auto is_left = [&](Expr s) { return sym::contains(rest, s); };
    if (times == 0 || std::ranges::any_of(sym::symbols(guard.expression), is_left)) continue;
    sym::Range range = sym::bounds(guard.expression);
    range.high = std::min(range.high, *bound - 1);
    if (range.low > range.high) continue;  // unreachable
    index = rest + sym::fresh(context_, {.range = range}) * times;
  }
  return index;
}

bool Overlap::is_disjoint_narrowed(const Touch& a, const Touch& b, const SharedSymbols& shared) {
  const auto narrow = [&](Touch touch) {
    const std::span<Expr> indices = lists_.copy(touch.indices);
    for (Expr& e : indices) e = narrowed(e, touch);
    touch.indices = indices;
    return touch;
  };
  return find_disjoint(narrow(a), narrow(b), shared);
}

}  // namespace inkle::kernel
