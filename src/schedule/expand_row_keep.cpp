#include "schedule/expand_row_keep.h"

#include <algorithm>
#include <utility>

namespace inkle::schedule::expansion {

using loop::ReduceOp;
using loop::Val;

namespace {

// Registers of a thread for what a row keeps; beyond, functions are recomputed rather than kept
// (half of what 512 threads of each of two blocks of a multiprocessor can have).
constexpr std::int64_t kMostKeptRegisters = 48;

}  // namespace

KeptRow::KeptRow(BlockExpansion& x, const RowShape& shape) : x_(x), shape_(shape) { plan(); }

// Values are kept from pass to pass of one iteration.
void KeptRow::plan() {
  const auto add = [&](bool in_each) {
    for (std::size_t s = 0; s < x_.prepared.stages.size(); ++s) {
      const Stage& stage = x_.prepared.stages[s].stage;
      if ((stage.phase == Phase::each) != in_each) continue;
      passes_.push_back({s, 0});
      if (x_.blocks.rows().keep && stage.kind == StageKind::reduction &&
          stage.reduce == ReduceOp::welford && !stage.inner.empty()) {
        passes_.push_back({s, 1});
      }
    }
  };
  add(true);
  KeepPlan keep;
  if (x_.blocks.rows().keep) {
    keep = plan_kept(x_.prepared.stages, passes_, false);
    if (registers_of(keep) > kMostKeptRegisters) {
      keep = plan_kept(x_.prepared.stages, passes_, true);
    }
  }
  add(false);
  known_ = std::move(keep.known);
  known_.resize(passes_.size());
  for (const KeptValue& value : keep.kept) {
    const std::int64_t count = shape_.accesses_of(stage_of(value.first_pass).stage);
    kept_.push_back({value, registers(x_.e.b, "c", value.dtype, {count, x_.blocks.lanes})});
  }
}

std::int64_t KeptRow::registers_of(const KeepPlan& plan) const {
  std::int64_t bytes = 0;
  for (const KeptValue& kept : plan.kept) {
    const Expr extent = stage_of(kept.first_pass).stage.inner.front().extent;
    const std::int64_t count = (*extent.constant() + shape_.step() - 1) / shape_.step();
    bytes += count * x_.blocks.lanes * abi::size_of(kept.dtype);
  }
  return bytes / 4;
}

const PreparedStage& KeptRow::stage_of(std::size_t pass) const {
  return x_.prepared.stages[passes_[pass].stage];
}

std::vector<Val> KeptRow::kept_by(std::size_t pass) const {
  std::vector<Val> values;
  for (const Kept& kept : kept_) {
    if (kept.of.first_pass == pass) values.push_back(kept.of.value);
  }
  return values;
}

bool KeptRow::is_known(std::size_t pass, Val v) const {
  return std::any_of(known_[pass].begin(), known_[pass].end(),
                     [&](const KeepPlan::Use& use) { return use.value == v; });
}

bool KeptRow::is_given(std::size_t pass, Val v) const {
  return is_known(pass, v) || std::any_of(kept_.begin(), kept_.end(), [&](const Kept& kept) {
           return kept.fetched && kept.of.first_pass == pass && kept.of.value == v;
         });
}

std::optional<kernel::MemoryId> KeptRow::fetch(std::size_t pass, Val v) {
  for (Kept& kept : kept_) {
    if (kept.of.first_pass != pass || kept.of.value != v) continue;
    kept.fetched = true;
    return kept.registers;
  }
  return std::nullopt;
}

void KeptRow::prefetch(const Stage& stage, std::size_t pass, const RowLoops& loops) {
  std::vector<LoadedAhead> ahead;
  for (const Kept& kept : kept_) {
    if (kept.of.first_pass != pass || kept.fetched) continue;
    const loop::Val v = kept.of.value;
    if (shape_.is_packed(stage, v)) ahead.push_back({v, kept.registers});
  }
  if (ahead.empty()) return;
  Usage usage;
  usage.lasts = x_.blocks.lasting;
  (void)loops.kept(stage, usage, {}, [&](const RowPlace& place, const Values&) {
    shape_.load(stage, place, place.number, ahead);
    return Values();
  });
  for (const LoadedAhead& load : ahead) (void)fetch(pass, load.value);
}

void KeptRow::provide(std::size_t pass, const RowPlace& place, Expr lane,
                      BodyExpander& body) const {
  const auto know = [&](Val v, const Kept& kept) {
    body.know(v, x_.e.b.load(element_of(kept.registers, place.number, lane)));
  };
  for (const KeepPlan::Use& use : known_[pass]) know(use.value, kept_[use.kept]);
  for (const Kept& kept : kept_) {
    if (kept.of.first_pass == pass && kept.fetched) know(kept.of.value, kept);
  }
}

void KeptRow::capture(std::size_t pass, const RowPlace& place, Expr lane,
                      BodyExpander& body) const {
  for (const Kept& kept : kept_) {
    if (kept.of.first_pass != pass || kept.fetched) continue;
    x_.e.b.store(element_of(kept.registers, place.number, lane), body.value(kept.of.value, 0));
  }
}

}  // namespace inkle::schedule::expansion
