#include "kernel/variance_symbols.h"

#include <algorithm>

#include "loop/scope.h"
#include "sym/symbols.h"

namespace inkle::kernel {
namespace {

constexpr std::int64_t kWarp = 32;

// The first symbols stand for what all thread axes have in parts: numbers of warps, and within one.
constexpr std::uint32_t kWarpPart = 0, kThreadPart = 1;

}  // namespace

// Where expressions are simplified with thread axes in parts.
struct SymbolVariance::Scratch {
  sym::Context context;
  loop::Translation translation{context};
  ExprMap<Number> numbers;  // of the context's symbols
};

SymbolVariance::~SymbolVariance() = default;

SymbolVariance::SymbolVariance(const Kernel& kernel) {
  symbols_.push_back({.variance = Variance::warp});
  symbols_.push_back({.variance = Variance::thread});
  for (const Expr size : kernel.sizes) {
    Symbol made;
    made.info = size.context().info(size);
    made.info.extent = Expr();
    declare(size, made);
  }
  declare_axes(kernel.launch);
}

// --- Symbols
// ---------------------------------------------------------------------------------------

void SymbolVariance::declare(Expr symbol, const Symbol& made) {
  if (symbol.is_null()) return;
  const auto [number, is_new] = numbers_.add(symbol);
  if (!is_new) {
    Variance& known = symbols_[*number].variance;
    known = std::max(known, made.variance);
    return;
  }
  *number = static_cast<Number>(symbols_.size());
  symbols_.push_back(made);
}

// One that is not in scope varies by lane.
SymbolVariance::Number SymbolVariance::number_of(Expr symbol) {
  if (const Number* known = numbers_.find(symbol)) return *known;
  declare(symbol, {.variance = Variance::lane});
  return static_cast<Number>(symbols_.size() - 1);
}

// Positions along a thread axis are (numbers of warps) * within + (numbers within a warp), so that
// floordiv(t, 32) is seen to be one for all threads of a warp.
void SymbolVariance::declare_thread_axis(const Axis& axis, std::int64_t inner) {
  const std::int64_t extent = axis.extent.constant().value_or(1);
  Symbol made;
  made.info.range.low = 0;
  made.info.extent = axis.extent;
  if (extent == 1) {
    made.within = 0;
  } else if (inner % kWarp == 0) {
    made.variance = Variance::warp;
  } else {
    made.variance = Variance::thread;
    const std::int64_t within = kWarp % inner == 0 ? kWarp / inner : extent;
    if (extent > within && extent % within == 0) {
      made.parts = extent / within;
      made.within = within;
    }
  }
  declare(axis.variable, made);
}

void SymbolVariance::declare_axes(const Launch& launch) {
  const std::vector<Axis>& axes = launch.axes;
  std::int64_t inner = 1;
  for (std::size_t i = axes.size(); i-- > 0;) {
    const Axis& axis = axes[i];
    if (axis.kind == AxisKind::thread) {
      declare_thread_axis(axis, inner);
      inner *= axis.extent.constant().value_or(1);
      continue;
    }
    (void)of(axis.extent);
    const bool one_a_cluster = axis.kind == AxisKind::grid;
    declare(axis.variable, {.variance = one_a_cluster ? Variance::cluster : Variance::block,
                            .info = {.range = {.low = 0}, .extent = axis.extent}});
  }
}

// --- Expressions
// ------------------------------------------------------------------------------------

SymbolVariance::Scratch& SymbolVariance::scratch() {
  if (!scratch_) scratch_ = std::make_unique<Scratch>();
  return *scratch_;
}

Expr SymbolVariance::fresh(const sym::SymbolInfo& facts, Number number) {
  const Expr made = sym::fresh(scratch().context, facts);
  *scratch().numbers.add(made).first = number;
  return made;
}

// Symbols that bounds and extents consist of are known before the symbol itself, so this ends.
Expr SymbolVariance::local_symbol(Expr e) {
  const Number number = number_of(e);
  Symbol& s = symbols_[number];
  if (!s.local.is_null()) return s.local;
  sym::Context& context = scratch().context;
  const auto part = [&](std::int64_t count, Number of) {
    return fresh({.range = {.low = 0}, .extent = context.constant(count)}, of);
  };
  if (s.within == 0) {
    s.local = context.constant(0);
  } else if (s.parts > 0) {
    s.local = part(s.parts, kWarpPart) * s.within + part(s.within, kThreadPart);
  } else if (!s.begin.is_null()) {
    Loop here;
    here.begin = local(s.begin);
    here.end = local(s.info.extent);
    here.step = local(s.step);
    s.local = fresh(facts_of(here), number);
  } else {
    sym::SymbolInfo facts = s.info;
    if (!facts.extent.is_null()) facts.extent = local(facts.extent);
    s.local = fresh(facts, number);
  }
  scratch().translation.map(e, s.local);
  return s.local;
}

Expr SymbolVariance::local(Expr e) {
  for (const Expr symbol : sym::symbols(e)) (void)local_symbol(symbol);
  return scratch().translation(e);
}

namespace {

// Whether a symbol of it that varies always leaves a value that varies.
bool is_polynomial(Expr e) {
  switch (e.kind()) {
    case sym::Kind::constant:
    case sym::Kind::symbol:
      return true;
    case sym::Kind::add:
    case sym::Kind::mul:
      return std::ranges::all_of(e.operands(), is_polynomial);
    default:
      return false;
  }
}

}  // namespace

// Only where a thread axis stands in a division need an expression be simplified anew with it in
// parts: elsewhere both parts stay. What divisions of a sum have in common is simplified in the sum
// already, so each is looked at by itself.
SymbolVariance::Parts SymbolVariance::parts(Expr e) {
  if (const Parts* known = parts_.find(e)) return *known;
  const auto begin = static_cast<std::uint32_t>(pool_.size());
  bool has_parts = false;
  (void)sym::all_symbols(e, [&](Expr s) {
    const Number number = number_of(s);
    has_parts = has_parts || symbols_[number].within != 1;
    if (std::find(pool_.begin() + begin, pool_.end(), number) == pool_.end()) {
      pool_.push_back(number);
    }
    return true;
  });
  if (has_parts && !is_polynomial(e)) {
    pool_.resize(begin);
    if (e.kind() == sym::Kind::add) return *parts_.add(e).first = kByTerms;
    for (const Expr s : sym::symbols(local(e))) pool_.push_back(*scratch().numbers.find(s));
  }
  return *parts_.add(e).first = {begin, static_cast<std::uint32_t>(pool_.size())};
}

Variance SymbolVariance::of(Expr expression) {
  Variance out = Variance::kernel;
  if (expression.is_null() || expression.is_constant()) return out;
  if (expression.kind() == sym::Kind::symbol) return symbols_[number_of(expression)].variance;
  const Parts all = parts(expression);
  if (all == kByTerms) {
    for (const Expr term : expression.operands()) out = std::max(out, of(term));
    return out;
  }
  for (std::uint32_t i = all.begin; i < all.end; ++i) {
    out = std::max(out, symbols_[pool_[i]].variance);
  }
  return out;
}

}  // namespace inkle::kernel
