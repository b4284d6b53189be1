// One stage of a loop kernel as loops, vector regions and carried values.
#include "schedule/expand_reduce.h"
#include "schedule/expand_stage_loops.h"

namespace inkle::schedule {

using loop::Opcode;

int weight_of(const loop::Body& body) {
  int weight = 0;
  for (const loop::Instruction& i : body.instructions) {
    if (i.opcode >= Opcode::exp && i.opcode <= Opcode::hypot)
      weight += 20;
    else if (i.opcode != Opcode::constant)
      weight += 1;
  }
  return weight;
}

}  // namespace inkle::schedule

namespace inkle::schedule::expansion {

namespace {

Values at_points(StageLoops& loops, const Stage& stage) {
  const auto point = [&](BodyExpander& body, const Lanes& group, int, const Values&) {
    for (int copy = 0; copy < group.copies; ++copy) {
      for (const loop::Val yield : stage.body.yields) (void)body.value(yield, copy);
    }
    for (int copy = 0; copy < group.copies; ++copy) {
      for (const StageStore& store : stage.stores) body.store(store, copy);
    }
    return Values();
  };
  return loops.in_lanes(
      [&] { return loops.guarded({}, [&] { return loops.nest({}, nullptr, point); }); });
}

void scan(Expansion& expansion, StageLoops& loops, const Stage& stage) {
  Reducer reducer(expansion.b, stage.reduce, stage.accumulator, DType::i32);
  Values start;
  for (int copy = 0; copy < loops.shape().copies; ++copy) start.push_back(reducer.identity()[0]);
  const auto point = [&](BodyExpander& body, const Lanes& group, int, const Values& carried) {
    Values after = carried;
    for (int copy = 0; copy < group.copies; ++copy) {
      ValueId& running = after[static_cast<std::size_t>(copy)];
      const ValueId x =
          expansion.b.cast(body.value(stage.body.yields.at(0), copy), stage.accumulator);
      running = reducer.step({running}, x, kernel::kNone)[0];
    }
    for (int copy = 0; copy < group.copies; ++copy) {
      for (const StageStore& store : stage.stores) {
        body.store(store, after[static_cast<std::size_t>(copy)], group.lanes > 1, copy);
      }
    }
    return after;
  };
  (void)loops.guarded(start, [&] { return loops.nest(start, nullptr, point); });
}

}  // namespace

void expand_stage(Expansion& expansion, const Stage& stage, const Lanes* columns) {
  StageLoops loops(expansion, stage, columns);
  if (stage.kind == StageKind::scan) return scan(expansion, loops, stage);
  if (stage.kind == StageKind::reduction) return expand_reduction(expansion, stage, loops);
  (void)at_points(loops, stage);
}

}  // namespace inkle::schedule::expansion
