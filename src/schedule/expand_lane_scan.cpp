// Running extremes along rows of a CPU. Each lane of a vector gets the extreme of the lanes up to
// it in log2(lanes) steps; one scalar carries the extreme of the elements before. Sums
// stay in order, as their roundings do. What follows runs in the same loop where it can: values
// pass in registers, and the row is read and written once.
#include <algorithm>

#include "schedule/expand_parts.h"
#include "schedule/expand_reduce.h"

namespace inkle::schedule::expansion {

using kernel::Op;
using loop::Opcode;
using loop::ReduceOp;

namespace {

// --- Which stages --------------------------------------------------------------------------------

bool is_extreme(const Stage& stage) {
  return stage.kind == StageKind::scan &&
         (stage.reduce == ReduceOp::min || stage.reduce == ReduceOp::max);
}

bool stores_to(const Stage& stage, std::uint32_t buffer) {
  return std::any_of(stage.stores.begin(), stage.stores.end(),
                     [&](const StageStore& store) { return store.target == buffer; });
}

bool reads(const Stage& stage, std::uint32_t buffer) {
  return std::any_of(stage.body.instructions.begin(), stage.body.instructions.end(),
                     [&](const auto& i) { return i.opcode == Opcode::load && i.buffer == buffer; });
}

// The store of one of the stages that a load of another reads, at the same element.
const StageStore* store_of(const Stage& maker, const Stage& reader, const loop::Instruction& load) {
  const std::pair<Expr, Expr> map[] = {
      {reader.inner.front().variable, maker.inner.front().variable}};
  for (const StageStore& store : maker.stores) {
    if (store.target != load.buffer || load.operand_count != 0) continue;
    if (sym::substitute(load.indices.front(), map) == store.offset) return &store;
  }
  return nullptr;
}

bool reads_what_it_stores(const Stage& stage) {
  return std::any_of(stage.stores.begin(), stage.stores.end(),
                     [&](const StageStore& store) { return reads(stage, store.target); });
}

// Whether the stage may run at an element before those before it have come to the next.
bool follows(std::span<const Stage> before, const Stage& stage) {
  const Stage& first = before.front();
  if (stage.inner.size() != 1 || stage.phase != first.phase ||
      !(stage.inner.front().extent == first.inner.front().extent)) {
    return false;
  }
  if (stage.kind != StageKind::pointwise && !is_extreme(stage)) return false;
  if (reads_what_it_stores(stage)) return false;
  for (const Stage& earlier : before) {
    for (const loop::Instruction& i : stage.body.instructions) {
      if (i.opcode != Opcode::load || !stores_to(earlier, i.buffer)) continue;
      if (store_of(earlier, stage, i) == nullptr) return false;
    }
    for (const StageStore& store : stage.stores) {
      if (reads(earlier, store.target) || stores_to(earlier, store.target)) return false;
    }
  }
  return std::all_of(stage.stores.begin(), stage.stores.end(), [](const StageStore& store) {
    return store.mode == loop::StoreMode::overwrite;
  });
}

// --- The loop ------------------------------------------------------------------------------------

class LaneScan {
 public:
  LaneScan(Expansion& expansion, std::span<const Stage> stages, const std::vector<bool>& kept)
      : expansion_(expansion), b_(expansion.b), stages_(stages), kept_(kept) {
    for (const Stage& stage : stages) {
      reducers_.emplace_back(b_, stage.reduce, stage.accumulator, DType::i32);
    }
  }

  void run() {
    const Expr extent = stages_.front().inner.front().extent;
    const int lanes = expansion_.schedule.lanes;
    const Expr whole = sym::floordiv(extent, lanes) * lanes;
    Lanes shape;
    shape.lanes = lanes;
    const Values before = b_.vector(lanes, lanes, [&](Expr lane) {
      shape.lane = lane;
      return whole_vector_loop(
          expansion_, shape, whole, identities(),
          [&](const Lanes& group, int, const Values& carried) { return elements(group, carried); });
    });
    // What is less than a vector, one after the other.
    std::optional<std::int64_t> count;
    if (const auto all = extent.constant()) count = *all - *whole.constant();
    if (count == 0) return;
    (void)lane_loop(
        expansion_, {}, {whole, extent, count}, before, nullptr,
        [&](const Lanes& group, int, const Values& carried) { return elements(group, carried); });
  }

 private:
  // What a stage has made at this element.
  struct Made {
    Values stored;  // by store
  };

  Values identities() {
    Values all;
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      if (is_extreme(stages_[s])) all.push_back(reducers_[s].identity()[0]);
    }
    return all;
  }

  Values elements(const Lanes& group, const Values& carried) {
    Values after;
    std::vector<Made> made;
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      const Stage& stage = stages_[s];
      Lanes own = group;
      own.variable = stage.inner.front().variable;
      BodyExpander body(expansion_, stage.body, own);
      pass(body, s, made);
      ValueId running = kernel::kNone;
      if (is_extreme(stage)) {
        const ValueId x = b_.cast(body.value(stage.body.yields.at(0), 0), stage.accumulator);
        const ValueId before = carried[after.size()];
        running = run_on(s, group, before, x, after);
      }
      made.push_back(store(body, stage, running, group.lanes > 1));
    }
    return after;
  }

  // The running extreme at each lane; what is carried on joins `after`.
  ValueId run_on(std::size_t s, const Lanes& group, ValueId before, ValueId x, Values& after) {
    const auto join = [&](ValueId a, ValueId b) { return reducers_[s].merge({a}, {b})[0]; };
    if (group.lanes == 1) {
      after.push_back(join(before, x));
      return after.back();
    }
    kernel::Collective lanes;
    lanes.lanes = true;
    const kernel::Type type = b_.type_of(x);
    const auto merge = [&](const Values& v) { return Values{join(v[0], v[1])}; };
    const ValueId here = b_.operation(Op::scan, {x}, {type}, lanes, {{{type, type}, merge}})[0];
    lanes.from = group.lanes - 1;
    after.push_back(join(before, b_.operation(Op::broadcast, {here}, {type}, lanes)[0]));
    return join(before, here);
  }

  // The loads of what earlier stages have made are that.
  void pass(BodyExpander& body, std::size_t s, const std::vector<Made>& made) {
    const Stage& stage = stages_[s];
    for (loop::Val v = 0; v < stage.body.instructions.size(); ++v) {
      const loop::Instruction& i = stage.body[v];
      if (i.opcode != Opcode::load) continue;
      for (std::size_t m = 0; m < made.size(); ++m) {
        const StageStore* store = store_of(stages_[m], stage, i);
        if (store == nullptr) continue;
        const auto at = static_cast<std::size_t>(store - stages_[m].stores.data());
        body.know(v, made[m].stored[at]);
      }
    }
  }

  Made store(BodyExpander& body, const Stage& stage, ValueId running, bool has_lanes) {
    Made made;
    for (const StageStore& to : stage.stores) {
      const bool is_running = running != kernel::kNone;
      const loop::Val yield = stage.body.yields.at(to.yield);
      const ValueId value = is_running ? running : body.value(yield, 0);
      made.stored.push_back(b_.cast(value, dtype_of(to.target)));
    }
    for (std::size_t n = 0; n < stage.stores.size(); ++n) {
      const StageStore& to = stage.stores[n];
      if (kept_[to.target]) continue;
      const bool varies = running != kernel::kNone || body.varies(stage.body.yields.at(to.yield));
      body.store(to, made.stored[n], varies && has_lanes, 0);
    }
    return made;
  }

  DType dtype_of(std::uint32_t buffer) const {
    const auto& params = expansion_.scheduled.params;
    if (buffer < params.size()) return params[buffer].dtype;
    return expansion_.loops.scratch.at(buffer - params.size()).dtype;
  }

  Expansion& expansion_;
  kernel::Builder& b_;
  std::span<const Stage> stages_;
  const std::vector<bool>& kept_;
  std::vector<Reducer> reducers_;  // by stage
};

}  // namespace

LaneScans lane_scans(const Expansion& expansion) {
  const std::vector<Stage>& stages = expansion.loops.stages;
  const auto& params = expansion.scheduled.params;
  LaneScans scans;
  scans.stages.resize(stages.size());
  scans.kept.resize(params.size() + expansion.loops.scratch.size());
  const int lanes = expansion.schedule.lanes;
  if (lanes < 2 || expansion.columns) return scans;
  const bool may_alias =
      std::any_of(params.begin(), params.end(), [](const Param& p) { return p.may_alias; });
  std::vector<std::size_t> loop_of(stages.size());  // each stage alone: its own number
  for (std::size_t s = 0; s < stages.size(); ++s) {
    loop_of[s] = s;
    if (!is_extreme(stages[s]) || reads_what_it_stores(stages[s]) || stages[s].inner.size() != 1 ||
        stages[s].inner.front().extent.constant().value_or(lanes) < lanes) {
      continue;
    }
    std::size_t end = s + 1;
    while (!may_alias && end < stages.size() &&
           follows({stages.data() + s, end - s}, stages[end])) {
      loop_of[end++] = s;
    }
    scans.stages[s] = end - s;
    s = end - 1;
  }
  for (std::size_t b = params.size(); b < scans.kept.size(); ++b) {
    const auto buffer = static_cast<std::uint32_t>(b);
    std::size_t maker = stages.size();
    for (std::size_t s = 0; s < stages.size(); ++s) {
      if (stores_to(stages[s], buffer)) maker = loop_of[s];
    }
    if (maker == stages.size() || scans.stages[maker] == 0) continue;
    scans.kept[b] = true;
    for (std::size_t s = 0; s < stages.size(); ++s) {
      const bool touches = reads(stages[s], buffer) || stores_to(stages[s], buffer);
      if (touches && loop_of[s] != maker) scans.kept[b] = false;
    }
  }
  return scans;
}

void scan_in_lanes(Expansion& expansion, std::span<const Stage> stages,
                   const std::vector<bool>& kept) {
  LaneScan(expansion, stages, kept).run();
}

}  // namespace inkle::schedule::expansion
