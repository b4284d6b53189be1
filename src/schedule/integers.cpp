#include "schedule/integers.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "schedule/stages.h"

namespace inkle::schedule {
namespace {

using loop::Instruction;
using loop::Opcode;
using sym::Kind;

constexpr std::int64_t kLargestSize = std::int64_t{1} << 48;

Expr join(Kind kind, Expr a, Expr b) {
  switch (kind) {
    case Kind::add:
      return a + b;
    case Kind::mul:
      return a * b;
    case Kind::floordiv:
      return floordiv(a, b);
    case Kind::mod:
      return mod(a, b);
    case Kind::min:
      return min(a, b);
    case Kind::max:
      return max(a, b);
    case Kind::constant:
    case Kind::symbol:
      break;
  }
  return a;
}

class IntegerPasser {
 public:
  IntegerPasser(KernelStep& step, sym::Context& context, int& named)
      : step_(step), context_(context), named_(named) {
    for (const Expr size : step.kernel.sizes) {
      sizes_.insert(size);
      const sym::Range range = sym::bounds(size);
      if (range.low < -kLargestSize || range.high > kLargestSize) wide_.insert(size);
    }
  }

  void run() {
    if (wide_.empty()) return;
    for_each_loops(step_.kernel, [&](LoopKernel& loops) { pass(loops); });
    if (!symbols_.empty()) drop_unused();
  }

 private:
  void pass(LoopKernel& loops) {
    // Bounds of vectors and numbers of blocks are quotients of lengths of loops.
    for (Dim& dim : loops.outer) dim.extent = passed(dim.extent);
    for (Scratch& scratch : loops.scratch) scratch.elements = passed(scratch.elements);
    for (Stage& stage : loops.stages) {
      for (Dim& dim : stage.inner) dim.extent = passed(dim.extent);
      for (Instruction& i : stage.body.instructions) {
        if (i.opcode != Opcode::load && i.opcode != Opcode::index) continue;
        for (Expr& e : i.indices) e = passed(e);
      }
      for (StageStore& store : stage.stores) store.offset = passed(store.offset);
    }
  }

  // `e` with the parts that are computed of sizes alone as symbols.
  Expr passed(Expr e) {
    if (e.is_constant() || e.kind() == Kind::symbol || !is_wide(e)) return e;
    if (is_of_sizes(e)) return symbol(e);
    const bool is_flat = e.kind() == Kind::add || e.kind() == Kind::mul;
    Expr of_sizes, result;
    for (const Expr operand : e.operands()) {
      if (is_flat && is_of_sizes(operand)) {
        of_sizes = of_sizes.is_null() ? operand : join(e.kind(), of_sizes, operand);
        continue;
      }
      const Expr next = passed(operand);
      result = result.is_null() ? next : join(e.kind(), result, next);
    }
    return of_sizes.is_null() ? result : join(e.kind(), result, passed(of_sizes));
  }

  bool is_of_sizes(Expr e) const {
    const auto symbols = sym::symbols(e);
    return std::ranges::all_of(symbols, [&](Expr s) { return sizes_.contains(s); });
  }
  bool is_wide(Expr e) const {
    const auto symbols = sym::symbols(e);
    return std::ranges::any_of(symbols, [&](Expr s) { return wide_.contains(s); });
  }

  Expr symbol(Expr e) {
    const auto [at, is_new] = symbols_.try_emplace(e);
    if (!is_new) return at->second;
    std::string name;
    do {
      name = fmt::format("integer{}", named_++);
    } while (context_.find_symbol(name));
    at->second = context_.symbol(name, {.range = sym::bounds(e), .hint = sym::hint(e)});
    if (step_.table.empty()) step_.table.push_back(step_.kernel.sizes);
    const std::vector<Expr> formal = step_.kernel.sizes;
    for (std::vector<Expr>& actual : step_.table) {
      std::vector<std::pair<Expr, Expr>> map;
      for (std::size_t s = 0; s < formal.size(); ++s) map.emplace_back(formal[s], actual[s]);
      actual.push_back(sym::substitute(e, map));
    }
    step_.kernel.sizes.push_back(at->second);
    return at->second;
  }

  void drop_unused() {
    const std::vector<Expr> before = step_.kernel.sizes;
    collect_sizes(step_.kernel, context_);
    for (std::vector<Expr>& actual : step_.table) {
      std::vector<Expr> kept;
      for (const Expr size : step_.kernel.sizes) {
        const auto at = std::ranges::find(before, size);
        INKLE_CHECK(at != before.end(), "{} was no size of the kernel", size.name());
        kept.push_back(actual[static_cast<std::size_t>(at - before.begin())]);
      }
      actual = std::move(kept);
    }
  }

  KernelStep& step_;
  sym::Context& context_;
  int& named_;
  std::unordered_set<Expr> sizes_, wide_;
  std::unordered_map<Expr, Expr> symbols_;
};

}  // namespace

void pass_integers(std::vector<Step>& steps, sym::Context& context) {
  int named = 0;
  for (Step& step : steps) {
    if (auto* kernel = std::get_if<KernelStep>(&step.action)) {
      IntegerPasser(*kernel, context, named).run();
    }
  }
}

}  // namespace inkle::schedule
