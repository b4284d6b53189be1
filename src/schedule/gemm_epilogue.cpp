#include "schedule/gemm_epilogue.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "loop/builder.h"

namespace inkle::schedule {
namespace {

using loop::BodyBuilder;
using loop::Instruction;
using loop::Opcode;
using loop::Val;
using Replacements = std::vector<std::pair<Expr, Expr>>;

// The same, of loops in any order; each element of the result is read where it is made.
std::optional<Replacements> places(const LoopKernel& loops, const Stage& stage,
                                   std::uint32_t product, const GemmKernel& g,
                                   sym::Context& context) {
  std::vector<Dim> dims = loops.outer;
  dims.insert(dims.end(), stage.inner.begin(), stage.inner.end());
  constexpr std::size_t kMost = 4;
  if (dims.size() > kMost) return std::nullopt;
  std::vector<std::size_t> order(dims.size());
  for (std::size_t d = 0; d < order.size(); ++d) order[d] = d;
  do {
    std::vector<Dim> ordered;
    for (const std::size_t d : order) ordered.push_back(dims[d]);
    const auto map = loops_over(
        ordered, {{g.variables[0], g.batch}, {g.variables[1], g.rows}, {g.variables[2], g.columns}},
        context);
    if (!map) continue;
    const bool fits = std::all_of(
        stage.body.instructions.begin(), stage.body.instructions.end(), [&](const Instruction& i) {
          return i.opcode != Opcode::load || i.buffer != product ||
                 sym::substitute(i.indices[0], *map) == g.stores.front().offset;
        });
    if (fits) return map;
  } while (std::next_permutation(order.begin(), order.end()));
  return std::nullopt;
}

}  // namespace

std::optional<Replacements> loops_over(std::span<const Dim> dims,
                                       std::vector<std::pair<Expr, Expr>> levels,
                                       sym::Context& context) {
  Replacements result;
  for (std::size_t d = dims.size(); d-- > 0;) {
    const Dim& dim = dims[d];
    if (dim.variable.is_constant()) continue;
    if (dim.extent.is_constant(1)) {
      result.emplace_back(dim.variable, context.constant(0));
      continue;
    }
    bool taken = false;
    while (!taken && !levels.empty()) {
      auto& [e, extent] = levels.back();
      if (extent == dim.extent) {
        result.emplace_back(dim.variable, e);
        levels.pop_back();
        taken = true;
      } else if (extent.is_constant(1)) {
        levels.pop_back();
      } else if (const auto n = extent.constant(), by = dim.extent.constant();
                 n && by && *by > 0 && *n > *by && *n % *by == 0) {
        result.emplace_back(dim.variable, sym::mod(e, dim.extent));
        e = sym::floordiv(e, dim.extent);
        extent = context.constant(*n / *by);
        taken = true;
      } else {
        const auto [inner, width] = levels.back();
        levels.pop_back();
        if (levels.empty()) return std::nullopt;
        levels.back() = {levels.back().first * width + inner, levels.back().second * width};
      }
    }
    if (!taken) return std::nullopt;
  }
  for (const auto& level : levels) {
    if (!level.second.is_constant(1)) return std::nullopt;
  }
  return result;
}

bool is_plain_pointwise(const KernelStep& step) {
  const auto* loops = std::get_if<LoopKernel>(&step.kernel.body);
  if (loops == nullptr || step.kernel.instances != 1 || !step.table.empty()) return false;
  if (!loops->scratch.empty() || !loops->rows.empty() || loops->sequential != 0) return false;
  for (const Param& p : step.kernel.params) {
    if (p.role == ParamRole::inout || p.may_alias) return false;
  }
  return std::all_of(loops->stages.begin(), loops->stages.end(), [](const Stage& stage) {
    const bool overwrites =
        std::all_of(stage.stores.begin(), stage.stores.end(),
                    [](const StageStore& s) { return s.mode == loop::StoreMode::overwrite; });
    return stage.kind == StageKind::pointwise && overwrites &&
           std::none_of(stage.body.instructions.begin(), stage.body.instructions.end(),
                        [](const Instruction& i) { return i.opcode == Opcode::indirect; });
  });
}

bool join_epilogue(const KernelStep& next, loop::BufferId product_buffer, bool is_only,
                   KernelStep& step, sym::Context& context) {
  if (!is_plain_pointwise(next)) return false;
  const auto& loops = std::get<LoopKernel>(next.kernel.body);
  const auto found = std::find(next.buffers.begin(), next.buffers.end(), product_buffer);
  const auto product = static_cast<std::uint32_t>(found - next.buffers.begin());
  GemmKernel g = std::get<GemmKernel>(step.kernel.body);
  KernelStep made = step;
  if (is_only) {
    made.kernel.params.pop_back();
    made.buffers.pop_back();
  }
  std::vector<std::uint32_t> at(next.buffers.size(), 0);
  for (std::uint32_t p = 0; p < at.size(); ++p) {
    if (p == product) continue;
    at[p] = static_cast<std::uint32_t>(made.buffers.size());
    made.buffers.push_back(next.buffers[p]);
    made.kernel.params.push_back(next.kernel.params[p]);
  }
  loop::Body epilogue = g.epilogue;
  const Val result = epilogue.yields.front();
  if (is_only) epilogue.yields.clear();
  std::vector<StageStore> stores = is_only ? std::vector<StageStore>() : g.stores;
  BodyBuilder body(epilogue, context);
  for (const Stage& stage : loops.stages) {
    const auto map = places(loops, stage, product, g, context);
    if (!map) return false;
    const auto first = static_cast<std::uint32_t>(epilogue.yields.size());
    const auto on_load = [&](BodyBuilder& to, Instruction load) {
      if (load.buffer == product) return result;
      load.buffer = at[load.buffer];
      return to.append(std::move(load));
    };
    for (const Val v : loop::inline_body(stage.body, *map, body, on_load)) body.yield(v);
    for (const StageStore& store : stage.stores) {
      stores.push_back(
          {at[store.target], sym::substitute(store.offset, *map), store.mode, first + store.yield});
    }
  }
  g.epilogue = std::move(epilogue);
  g.stores = std::move(stores);
  made.kernel.body = std::move(g);
  step = std::move(made);
  return true;
}

}  // namespace inkle::schedule
