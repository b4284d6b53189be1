#include "schedule/loops.h"

#include <algorithm>
#include <functional>
#include <map>
#include <span>

#include "base/error.h"
#include "schedule/blocks.h"
#include "schedule/density.h"
#include "schedule/inline.h"
#include "schedule/linear.h"

namespace inkle::schedule {
namespace {

using loop::Instruction;
using loop::Opcode;
using Map = std::vector<std::pair<Expr, Expr>>;

// Stages whose result depends on the order of their points.
bool is_ordered(const Stage& stage) {
  if (stage.kind == StageKind::scan || stage.kind == StageKind::scatter) return true;
  return stage.kind == StageKind::reduction &&
         (stage.reduce == loop::ReduceOp::argmin || stage.reduce == loop::ReduceOp::argmax);
}

void for_each_expression(Stage& stage, const std::function<void(Expr&)>& f) {
  for (Instruction& i : stage.body.instructions) {
    if (i.opcode == Opcode::load || i.opcode == Opcode::index) {
      for (Expr& e : i.indices) f(e);
    }
  }
  for (StageStore& store : stage.stores) f(store.offset);
}

// A typical stride along `variable`, for ordering: the largest of the stores', else of the loads'.
std::int64_t typical_stride(const std::vector<WeightedOffset>& offsets, Expr variable) {
  std::int64_t of_stores = 0;
  std::int64_t of_loads = 0;
  for (const auto& [offset, is_store, weight, buffer] : offsets) {
    if (!sym::contains(offset, variable)) continue;
    const auto stride = sym::stride(offset, variable);
    const std::int64_t hint = stride ? std::abs(sym::hint(*stride).value_or(1 << 20)) : 1 << 20;
    std::int64_t& slot = is_store ? of_stores : of_loads;
    slot = std::max(slot, hint);
  }
  return of_stores != 0 ? of_stores : of_loads;
}

void order(std::vector<Dim>& dims, const std::vector<WeightedOffset>& offsets) {
  std::stable_sort(dims.begin(), dims.end(), [&](const Dim& a, const Dim& b) {
    return typical_stride(offsets, a.variable) > typical_stride(offsets, b.variable);
  });
}

// Loops a, b become one if every expression's stride along a is its stride along b times B.
bool is_one_loop(Expr e, const Dim& a, const Dim& b, sym::Context& context) {
  const bool has_a = sym::contains(e, a.variable);
  const bool has_b = sym::contains(e, b.variable);
  if (!has_a && !has_b) return true;
  const auto sa = has_a ? sym::stride(e, a.variable) : context.constant(0);
  const auto sb = has_b ? sym::stride(e, b.variable) : context.constant(0);
  if (!sa || !sb) return false;
  if (sym::contains(*sa, b.variable) || sym::contains(*sb, a.variable)) return false;
  return *sa == *sb * b.extent;
}

// Merges neighbours of `dims`; the expressions that matter are those of `stages`.
void merge(std::vector<Dim>& dims, const std::vector<Stage*>& stages, sym::Context& context) {
  for (std::size_t d = 0; d + 1 < dims.size();) {
    const Dim a = dims[d];
    const Dim b = dims[d + 1];
    bool mergeable = true;
    for (Stage* stage : stages) {
      for_each_expression(*stage,
                          [&](Expr& e) { mergeable = mergeable && is_one_loop(e, a, b, context); });
    }
    if (!mergeable) {
      ++d;
      continue;
    }
    const Expr extent = a.extent * b.extent;
    const Expr merged = context.index(extent);
    // a*B*s + b*s == merged*s, so a := 0 and b := merged.
    const Map map = {{a.variable, context.constant(0)}, {b.variable, merged}};
    for (Stage* stage : stages) {
      for_each_expression(*stage, [&](Expr& e) { e = sym::substitute(e, map); });
    }
    dims[d] = {merged, extent};
    dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(d) + 1);
    if (d > 0) --d;
  }
}

// Removes loops of one iteration that no index uses; the order of the others stays.
void drop_unit_loops(Stage& stage) {
  std::erase_if(stage.inner, [&](const Dim& dim) {
    bool is_used = !dim.extent.is_constant(1);
    for_each_expression(stage,
                        [&](Expr& e) { is_used = is_used || sym::contains(e, dim.variable); });
    return !is_used;
  });
}

// Lanes that run along a reduced loop cannot run along an outer one.
bool has_rows(const LoopKernel& loops) {
  return std::any_of(loops.stages.begin(), loops.stages.end(), [](const Stage& stage) {
    return stage.association == Association::rows && !stage.inner.empty();
  });
}

// A rough count of nanoseconds for one outer iteration on one core.
double iteration_cost(const LoopKernel& kernel) {
  double cost = 0;
  for (const Stage& stage : kernel.stages) {
    const BodyCost body = cost_of(stage.body);
    const auto points = static_cast<double>(extent_hint(stage.inner));
    const bool serial = stage.kind == StageKind::scan || stage.kind == StageKind::scatter;
    cost += points * ((serial ? 1.0 : 0.0) + 0.05 * static_cast<double>(body.loads + body.cheap) +
                      0.5 * static_cast<double>(body.expensive));
  }
  return std::max(cost, 0.05);
}

// An outer loop but the last along which an access has unit stride, where the same access along the
// last loop is strided: the two loops are tiled. The one with most points, if any.
std::optional<std::size_t> transposed_loop(const LoopKernel& loops,
                                           const std::vector<WeightedOffset>& offsets) {
  const Expr last = loops.outer.back().variable;
  std::optional<std::size_t> result;
  double best = 0;
  for (std::size_t d = 0; d + 1 < loops.outer.size(); ++d) {
    double weight = 0;
    for (const auto& [offset, is_store, points, buffer] : offsets) {
      if (!sym::contains(offset, last) || !sym::contains(offset, loops.outer[d].variable)) continue;
      const auto jump = sym::stride(offset, last);
      const auto step = sym::stride(offset, loops.outer[d].variable);
      if (jump && step && step->is_constant(1) && !jump->is_constant(1)) weight += points;
    }
    if (weight <= best || sym::hint(loops.outer[d].extent).value_or(4096) < 4) continue;
    best = weight;
    result = d;
  }
  return result;
}

}  // namespace

void order_and_merge_loops(LoopKernel& kernel, sym::Context& context) {
  // Offsets into scratch do not contain outer variables; parameters and scratch count alike here.
  const auto offsets = all_offsets(kernel, ~std::size_t{0});
  std::vector<Stage*> all;
  for (Stage& stage : kernel.stages) all.push_back(&stage);
  // Sequential loops stay inside of the others.
  const auto first_sequential = kernel.outer.end() - static_cast<std::ptrdiff_t>(kernel.sequential);
  std::vector<Dim> sequential(first_sequential, kernel.outer.end());
  kernel.outer.erase(first_sequential, kernel.outer.end());
  for (std::vector<Dim>* dims : {&kernel.outer, &sequential}) {
    order(*dims, offsets);
    merge(*dims, all, context);
  }
  kernel.sequential = sequential.size();
  kernel.outer.insert(kernel.outer.end(), sequential.begin(), sequential.end());
  for (Stage& stage : kernel.stages) {
    if (stage.association != Association::free) {
      drop_unit_loops(stage);
      continue;
    }
    if (!is_ordered(stage)) order(stage.inner, offsets_of(stage, ~std::size_t{0}));
    merge(stage.inner, {&stage}, context);
  }
}

Schedule choose_schedule(Kernel& kernel, const abi::Target& device, sym::Context& context) {
  if (device.has_blocks) return choose_blocks(kernel, device, context);
  auto& loops = std::get<LoopKernel>(kernel.body);
  Schedule schedule;
  schedule.lanes = device.vector_bytes / 4;
  const auto offsets = all_offsets(loops, kernel.params.size());
  const bool has_inner = std::any_of(loops.stages.begin(), loops.stages.end(),
                                     [](const Stage& s) { return !s.inner.empty(); });
  if (!has_inner) {
    if (loops.outer.empty())
      loops.outer.push_back({context.index(context.constant(1)), context.constant(1)});
    schedule.vector_outer = true;
  } else if (!loops.outer.empty() && loops.sequential == 0 && !has_rows(loops)) {
    double inner_score = 0;
    for (const Stage& stage : loops.stages) {
      // A scatter's points run in order, so that only outer loops are vectorised.
      if (stage.inner.empty() || stage.kind == StageKind::scatter) continue;
      inner_score += density(offsets_of(stage, kernel.params.size()), stage.inner.back().variable);
    }
    double best = inner_score;
    std::size_t best_dim = loops.outer.size();
    for (std::size_t d = 0; d < loops.outer.size(); ++d) {
      const double score = density(offsets, loops.outer[d].variable);
      const bool wide = sym::hint(loops.outer[d].extent).value_or(4096) >= schedule.lanes / 2;
      if (wide && score > best) {
        best = score;
        best_dim = d;
      }
    }
    if (best_dim < loops.outer.size()) {
      std::rotate(loops.outer.begin() + static_cast<std::ptrdiff_t>(best_dim),
                  loops.outer.begin() + static_cast<std::ptrdiff_t>(best_dim) + 1,
                  loops.outer.end());
      schedule.vector_outer = true;
    }
  }
  if (loops.outer.empty()) {
    loops.outer.push_back({context.index(context.constant(1)), context.constant(1)});
  }
  double cost = iteration_cost(loops);
  const std::span<const Dim> outer = loops.outer;
  cost *= static_cast<double>(extent_hint(outer.last(loops.sequential)));
  if (schedule.vector_outer) {
    const std::int64_t last = sym::hint(loops.outer.back().extent).value_or(4096);
    // With inner loops: as many columns as a few vectors have, so that each access to a row uses
    // whole cache lines.
    std::int64_t block = has_inner ? std::int64_t{4} * schedule.lanes : device.loops.elementwise;
    if (!has_inner && last < block) block = std::max<std::int64_t>(last, schedule.lanes);
    const auto transposed = has_inner ? std::nullopt : transposed_loop(loops, offsets);
    if (transposed) {
      const auto at = loops.outer.begin() + static_cast<std::ptrdiff_t>(*transposed);
      std::rotate(at, at + 1, loops.outer.end() - 1);
      schedule.strips = true;
      block = schedule.lanes;
    }
    schedule.block = block;
    cost *= static_cast<double>(std::min(block, last));
  }
  schedule.grain =
      std::max<std::int64_t>(1, static_cast<std::int64_t>(device.loops.thread_nanoseconds / cost));
  return schedule;
}

}  // namespace inkle::schedule
