#include "schedule/expand_rows.h"

#include <utility>

#include "base/error.h"

namespace inkle::schedule::expansion {

RowStages::RowStages(BlockExpansion& x, const RowTeam& team, const RowShape& shape, RowLoops& loops,
                     KeptRow& keep, StagedRows* staged)
    : x_(x),
      team_(team),
      shape_(shape),
      keep_(keep),
      bodies_(x, shape, loops, keep, staged),
      reductions_(x, team, shape, bodies_) {}

void RowStages::pass(std::size_t p) {
  const PreparedStage& prepared = keep_.stage_of(p);
  switch (prepared.stage.kind) {
    case StageKind::pointwise:
    case StageKind::scatter:
      return pointwise(prepared.stage, p);
    case StageKind::reduction:
      return reductions_.reduce(prepared, p, keep_.passes()[p].part);
    case StageKind::scan:
      INKLE_CHECK(!x_.blocks.rows().keep, "kernel {}: a scan of a row that is kept",
                  x_.e.scheduled.name);
      return RowScan(x_, team_, shape_, bodies_, prepared.stage, p).run();
  }
}

void RowStages::phase(Phase phase) {
  for (std::size_t p = 0; p < keep_.passes().size(); ++p) {
    if (keep_.stage_of(p).stage.phase == phase) pass(p);
  }
}

void RowStages::pointwise(const Stage& stage, std::size_t pass) {
  if (stage.inner.empty()) return once(stage);
  RowBodies::Wanted wanted;
  wanted.stores = true;
  for (const StageStore& store : stage.stores) wanted.yields.push_back(store.yield);
  (void)bodies_.along(stage, pass, {}, [&](const RowPlace& place, const Values&) {
    return bodies_.in_lanes(stage, pass, place, wanted, [&](BodyExpander& body, Expr, ValueId) {
      body.store(stage.stores);
      return Values();
    });
  });
}

void RowStages::once(const Stage& stage) {
  const auto write = [&] { BodyExpander(x_.e, stage.body, {}).store(stage.stores); };
  if (team_.members() == 1) return write();
  where(x_.e.b, team_.is_first_thread(), write);
}

// --- Memory --------------------------------------------------------------------------------------

std::int64_t sums_of(const BlockExpansion& x, const Scratch& scratch) {
  const std::int64_t step = std::int64_t{x.blocks.rows().team} * x.blocks.lanes;
  return (std::max<std::int64_t>(scratch.elements.constant().value_or(1), 1) + step - 1) / step;
}

void declare_row_scratch(BlockExpansion& x, const RowTeam& team) {
  const auto& scratch = x.loops().scratch;
  const std::int64_t teams = x.blocks.threads / x.blocks.rows().team;
  for (std::size_t s = 0; s < scratch.size(); ++s) {
    if (!x.prepared.scratch_used[s]) {
      x.e.memories.push_back(kernel::kNone);
      continue;
    }
    if (scratch[s].elements.constant() && scratch[s].is_carried) {
      x.e.memories.push_back(
          registers(x.e.b, "t", scratch[s].dtype, {sums_of(x, scratch[s]), x.blocks.lanes}));
      continue;
    }
    kernel::Memory memory;
    memory.name = fmt::format("t{}", s);
    memory.dtype = scratch[s].dtype;
    const bool is_empty = scratch[s].elements.constant() == 0;  // CUDA has no such arrays
    memory.shape = {is_empty ? x.context().constant(1) : scratch[s].elements};
    memory.alignment = 16;
    if (team.members() == 1 && x.blocks.lanes == 1) {
      memory.space = kernel::Space::stack;
    } else {
      memory.space = kernel::Space::shared;
      if (teams > 1) {
        memory.shape.insert(memory.shape.begin(), x.context().constant(teams));
        x.e.team = team.at().number;
      }
    }
    x.e.memories.push_back(x.e.b.memory(std::move(memory)));
  }
}

void expand_rows(BlockExpansion& x) {
  if (x.loops().sequential != 0) return expand_sequential_rows(x);
  if (x.blocks.rows().chunk != 0) return expand_row_chunks(x);
  launch_rows(x, [&](const RowTeam& team) {
    declare_row_scratch(x, team);
    const RowShape shape(x, team);
    KeptRow keep(x, shape);
    RowLoops loops(x, team, shape);
    RowStages(x, team, shape, loops, keep, nullptr).phase(Phase::each);
  });
}

}  // namespace inkle::schedule::expansion
