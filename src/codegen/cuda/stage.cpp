#include "codegen/cuda/stage.h"

#include <algorithm>

#include "base/error.h"
#include "codegen/cuda/operation.h"

namespace inkle::codegen::cuda {

using loop::Instruction;
using loop::Opcode;
using schedule::BlockSchedule;
using schedule::StageKind;
using schedule::StageStore;
using sym::Expr;

StageText::StageText(KernelText& kernel, const BlockSchedule& blocks, Writer& out,
                     const Symbols& symbols, Expr columns, std::optional<WalkText> walk)
    : kernel_(kernel),
      blocks_(blocks),
      out_(out),
      symbols_(symbols),
      columns_(columns),
      walk_(std::move(walk)) {}

void StageText::write(const PreparedKernel& prepared) {
  stages_ = prepared.stages;
  plan_passes();
  fetched_.assign(keep_.kept.size(), false);
  dirty_.assign(kernel_.kernel.params.size() + kernel_.loops.scratch.size(), false);
  find_skew();
  declare_kept();
  if (walk_)
    walk();
  else
    phase(schedule::Phase::each);
}

void StageText::phase(schedule::Phase phase) {
  for (std::size_t p = 0; p < passes_.size(); ++p) {
    if (stages_[passes_[p].stage].stage.phase == phase) pass(p);
  }
}

void StageText::pass(std::size_t p) {
  const PreparedStage& current = stages_[passes_[p].stage];
  const Stage& stage = current.stage;
  if (needs_barrier(stage)) barrier();
  out_.open("");
  // Row values outlive the stage, so they are declared before its scope.
  switch (stage.kind) {
    case StageKind::pointwise:
    case StageKind::scatter:
      pointwise(stage, p);
      break;
    case StageKind::reduction:
      reduction(current, p, passes_[p].part);
      break;
    case StageKind::scan:
      if (by_rows())
        scan_rows(stage, p);
      else
        scan_columns(stage, p);
      break;
  }
  out_.close();
  note_written(stage);
}

// --- Bodies --------------------------------------------------------------------------------------

BodyText StageText::body_of(const Stage& stage, const Place& place, std::size_t pass) {
  BodyText body(kernel_, stage.body, place);
  const auto text = [&](std::size_t kept) {
    return place.lanes > 1 ? fmt::format("c{}[k].at[l]", kept) : fmt::format("c{}[k]", kept);
  };
  for (const Ahead& load : batch_) body.know(load.value, load.name + "[u].at[l]");
  for (loop::Val v = 0; v < stage.body.instructions.size(); ++v) {
    const Instruction& i = stage.body[v];
    if (i.opcode != Opcode::load || i.operand_count != 0) continue;
    for (std::size_t n = 0; n < numbers_.size(); ++n) {
      const bool same = numbers_[n].buffer == i.buffer && numbers_[n].offset == i.indices[0];
      if (same) body.know(v, fmt::format("own{}", n));
    }
  }
  for (const Staged& load : staged_) {
    if (load.pass == pass) body.know(load.value, fmt::format("row{}[k].at[l]", load.at));
  }
  for (const KeepPlan::Use& use : keep_.known[pass]) body.know(use.value, text(use.kept));
  for (std::size_t k = 0; k < keep_.kept.size(); ++k) {
    if (keep_.kept[k].first_pass != pass) continue;
    if (fetched_[k])
      body.know(keep_.kept[k].value, text(k));
    else
      body.capture(keep_.kept[k].value, text(k));
  }
  return body;
}

// A load without a condition whose place is known without other values.
bool StageText::is_direct(const Stage& stage, const Instruction& load) const {
  if (load.opcode != Opcode::load || load.operand_count != 0) return false;
  const auto symbols = sym::symbols(load.indices[0]);
  return std::all_of(symbols.begin(), symbols.end(), [&](Expr s) {
    return symbols_.contains(s.node()) || s == stage.inner.front().variable;
  });
}

// Kept loads of this pass, all of them in flight before the first is used.
void StageText::prefetch(const Stage& stage, std::size_t pass) {
  if (stage.inner.empty()) return;
  unstage(stage, pass);
  std::vector<std::size_t> ahead;
  for (std::size_t k = 0; k < keep_.kept.size(); ++k) {
    const KeptValue& kept = keep_.kept[k];
    const bool ours = kept.first_pass == pass && !fetched_[k];
    if (ours && is_direct(stage, stage.body[kept.value])) ahead.push_back(k);
  }
  if (ahead.empty()) return;
  std::vector<std::size_t> packed;
  positions(stage, true, [&](const Place& place) {
    BodyText body(kernel_, stage.body, place);
    for (const std::size_t k : ahead) {
      const auto text = body.pack_text(keep_.kept[k].value);
      if (!text) continue;
      out_.line("c{}[k] = {};", k, *text);
      packed.push_back(k);
    }
  });
  for (const std::size_t k : packed) fetched_[k] = true;
}

// --- Stages that store -------------------------------------------------------------------------

void StageText::once(const Stage& stage) {
  const auto write = [&](const Place& place) {
    BodyText body(kernel_, stage.body, place);
    std::vector<std::uint32_t> wanted;
    for (const StageStore& store : stage.stores) wanted.push_back(store.yield);
    body.write(out_, wanted, stage.stores, [&](Writer& out, const auto&, const auto&) {
      for (const StageStore& store : stage.stores) body.store_yield(out, store);
    });
  };
  if (!by_rows()) {
    if (blocks_.team > 1) out_.open("if (on && y == 0)");
    Place place = column_place();
    place.streams = place.leaves = blocks_.recent;
    write(place);
    if (blocks_.team > 1) out_.close();
    return;
  }
  Place place;
  place.symbols = symbols_;
  if (blocks_.team * blocks_.cluster > 1) out_.open("if (t == 0)");
  write(place);
  if (blocks_.team * blocks_.cluster > 1) out_.close();
}

void StageText::pointwise(const Stage& stage, std::size_t pass) {
  if (blocks_.axis == BlockSchedule::Axis::tile) {
    tile(stage);
    return;
  }
  if (stage.inner.empty()) {
    once(stage);
    return;
  }
  const bool kept = blocks_.keep && by_rows();
  if (kept) prefetch(stage, pass);
  std::vector<std::uint32_t> wanted;
  for (const StageStore& store : stage.stores) wanted.push_back(store.yield);
  positions(stage, kept, [&](const Place& place) {
    BodyText body = body_of(stage, place, pass);
    body.write(out_, wanted, stage.stores, [&](Writer& out, const auto&, const auto&) {
      for (const StageStore& store : stage.stores) body.store_yield(out, store);
    });
  });
}

}  // namespace inkle::codegen::cuda
