#include "kernel/place_barriers_overlap.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "sym/symbols.h"

namespace inkle::kernel {
namespace {

using loop::Opcode;

constexpr std::int64_t kWarp = 32;

std::vector<Expr> terms_of(Expr e) {
  if (e.kind() != sym::Kind::add) return {e};
  return {e.operands().begin(), e.operands().end()};
}

// Whether the element says which position of the axis it is of: the axis is a digit of the index
// that no other term reaches. What is left of the digit is less than its unit, and all other terms
// are multiples of what comes after it.
bool is_digit(Expr index, const ThreadAxis& axis, std::int64_t unit) {
  std::int64_t rest_low = 0;
  std::int64_t rest_high = 0;
  bool has_axis = false;
  for (const Expr term : terms_of(index)) {
    if (sym::contains(term, axis.variable)) {
      const auto step = sym::stride(term, axis.variable);
      if (has_axis || !step || !step->is_constant(unit) || term != axis.variable * unit) {
        return false;
      }
      has_axis = true;
    } else if (!sym::divides(unit * axis.extent, term)) {
      const sym::Range range = sym::bounds(term);
      if (range.low < 0 || range.high >= unit) return false;
      rest_low += range.low;
      rest_high += range.high;
      if (rest_high >= unit) return false;
    }
  }
  return has_axis;
}

// The factor of an axis in an index; none where it is not a term of its own.
std::optional<std::int64_t> unit_of(Expr index, const ThreadAxis& axis) {
  if (!sym::contains(index, axis.variable)) return std::nullopt;
  const auto step = sym::stride(index, axis.variable);
  if (!step || !step->constant() || *step->constant() <= 0) return std::nullopt;
  return *step->constant();
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
  const std::vector<ValueId>& operands = kernel[id].operands;
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
  std::int64_t span = 1;
  for (std::size_t i = 0; i < threads_.size(); ++i) {
    if (!is_determined(i, a, b)) span = threads_[i].stride * threads_[i].extent;
  }
  if (span == 1 || is_disjoint(a, b, shared)) return 0;
  const auto lanes = static_cast<std::uint64_t>(span);
  return span <= kWarp && std::has_single_bit(lanes) ? std::countr_zero(lanes) : kBlockReach;
}

bool Overlap::is_one_thread(const Touch& touch) {
  for (std::size_t i = 0; i < threads_.size(); ++i) {
    if (!is_determined(i, touch, touch)) return false;
  }
  return true;
}

const Overlap::Units& Overlap::units(Expr index) {
  const auto [at, is_new] = units_.try_emplace(index.node());
  if (!is_new) return at->second;
  for (const ThreadAxis& axis : threads_) {
    const auto unit = unit_of(index, axis);
    at->second.push_back(unit && is_digit(index, axis, *unit) ? *unit : 0);
  }
  return at->second;
}

// Whether threads that touch one element by both have one position on the axis.
bool Overlap::is_determined(std::size_t axis, const Touch& a, const Touch& b) {
  for (std::size_t d = 0; d < a.expanded.size() && d < b.expanded.size(); ++d) {
    const std::int64_t unit = units(a.expanded[d])[axis];
    if (unit != 0 && unit == units(b.expanded[d])[axis]) return true;
  }
  // Only the threads of one position come to both.
  for (const Guard& ga : a.guards) {
    if (!ga.is_equality) continue;
    for (const Guard& gb : b.guards) {
      if (!gb.is_equality || ga.expression != gb.expression || ga.bound != gb.bound) continue;
      if (units(ga.expression)[axis] != 0) return true;
    }
  }
  return false;
}

sym::SymbolInfo Overlap::facts(Expr symbol, const Touch& touch, const SharedSymbols& shared) const {
  const sym::SymbolInfo& known = context_.info(symbol);
  sym::SymbolInfo facts{known.range, known.divisor, {}, {}};
  const auto below = [&](Expr bound) {
    const std::int64_t high = sym::bounds(bound).high;
    if (high != sym::Range::kMax) facts.range.high = std::min(facts.range.high, high - 1);
    const bool is_shared = sym::all_symbols(bound, [&](Expr s) { return shared.contains(s); });
    if (is_shared && facts.range.low >= 0) facts.extent = bound;
  };
  if (!known.extent.is_null()) {
    facts.range.low = std::max<std::int64_t>(facts.range.low, 0);
    below(known.extent);
  }
  for (const Guard& guard : touch.guards) {
    if (guard.expression != symbol) continue;
    const auto constant = guard.bound.constant();
    if (guard.is_equality && constant) facts.range = {*constant, *constant};
    if (!guard.is_equality) below(guard.bound);
  }
  if (facts.range.low > facts.range.high) facts.range = known.range;  // nobody comes here
  return facts;
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
    if (sym::less(ea, eb) == true || sym::less(eb, ea) == true || has_other_remainder(ea, eb)) {
      return true;
    }
  }
  return false;
}

}  // namespace inkle::kernel
