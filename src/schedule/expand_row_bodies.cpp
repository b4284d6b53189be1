#include "schedule/expand_row_bodies.h"

#include <algorithm>
#include <utility>

#include "schedule/expand_row_staged.h"

namespace inkle::schedule::expansion {

using loop::Instruction;
using loop::Opcode;
using loop::Val;

// --- Elements ------------------------------------------------------------------------------------

Elements::Elements(kernel::Builder& b, DType dtype, std::int64_t lanes, std::int64_t accesses)
    : b_(b),
      memory_(registers(b, "v", dtype, {accesses, lanes})),
      dtype_(dtype),
      lanes_(lanes),
      number_(b.context().constant(0)) {}

Elements Elements::at(Expr number) const {
  Elements other = *this;
  other.number_ = number;
  return other;
}

ValueId Elements::load(Expr lane) const { return b_.load(memory_, {number_, lane}); }

void Elements::store(Expr lane, ValueId x) const { b_.store(memory_, {number_, lane}, x); }

ValueId Elements::load_lane(Expr lane) const { return b_.load(element_of(memory_, number_, lane)); }

void Elements::store_lane(Expr lane, ValueId x) const {
  b_.store(element_of(memory_, number_, lane), x);
}

void Elements::fill(ValueId x) const {
  in_vector(b_, lanes_, [&](Expr lane) { store_lane(lane, x); });
}

Values Elements::in_order(std::int64_t from, const Values& carried, const OfLane& f) const {
  sym::Context& context = b_.context();
  if (lanes_ == 1) return from == 0 ? f(context.constant(0), carried) : carried;
  kernel::Loop info;
  info.kind = kernel::LoopKind::unroll;
  info.begin = context.constant(from);
  info.end = context.constant(lanes_);
  info.step = context.constant(1);
  return b_.loop(std::move(info), carried, f);
}

// --- Bodies --------------------------------------------------------------------------------------

namespace {

bool divides_by(Expr e, Expr variable) {
  if (!sym::contains(e, variable)) return false;
  if (e.kind() == sym::Kind::floordiv || e.kind() == sym::Kind::mod) return true;
  const auto operands = e.operands();
  return std::any_of(operands.begin(), operands.end(),
                     [&](Expr operand) { return divides_by(operand, variable); });
}

// Whether a quotient by the row's position is somewhere in the stage.
bool divides_position(const Stage& stage) {
  const Expr variable = stage.inner.front().variable;
  const auto in_body = std::any_of(
      stage.body.instructions.begin(), stage.body.instructions.end(), [&](const Instruction& i) {
        return std::any_of(i.indices.begin(), i.indices.end(),
                           [&](Expr e) { return divides_by(e, variable); });
      });
  return in_body || std::any_of(stage.stores.begin(), stage.stores.end(), [&](const StageStore& s) {
           return divides_by(s.offset, variable);
         });
}

}  // namespace

RowBodies::RowBodies(BlockExpansion& x, const RowShape& shape, RowLoops& loops, KeptRow& keep,
                     StagedRows* staged)
    : x_(x), b_(x.e.b), shape_(shape), loops_(loops), keep_(keep), staged_(staged) {}

Values RowBodies::along(const Stage& stage, std::size_t pass, const Values& carried,
                        const RowLoops::AtPlace& f, bool once) {
  if (!x_.blocks.rows().keep) return loops_.looped(stage, carried, f);
  if (staged_ != nullptr) staged_->take(stage, pass);
  keep_.prefetch(stage, pass, loops_);
  Usage usage;
  usage.lasts = x_.blocks.lasting;
  usage.streams = once;
  return loops_.kept(stage, usage, carried, f);
}

// Whether the value is defined before a body of this pass: prefetched, or kept.
bool RowBodies::is_given(const Stage& stage, std::size_t pass, const RowPlace& place, Val v) const {
  const auto is_it = [&](const LoadedAhead& load) { return load.value == v; };
  return (place.loaded != nullptr && std::ranges::any_of(*place.loaded, is_it)) ||
         keep_.is_given(pass, v) || (staged_ != nullptr && staged_->is_given(stage, pass, v));
}

std::vector<bool> RowBodies::needed(const Stage& stage, std::size_t pass, const RowPlace& place,
                                    const Wanted& wanted) const {
  const loop::Body& body = stage.body;
  std::vector<bool> needed(body.instructions.size(), false);
  const auto given = [&](Val v) { return is_given(stage, pass, place, v); };
  const auto sources = [&](Expr e, const auto& need) {
    for (const Expr s : sym::symbols(e)) {
      for (Val v = 0; v < body.instructions.size(); ++v) {
        if (body[v].opcode == Opcode::indirect && body[v].indices[0] == s) need(v, need);
      }
    }
  };
  const auto need = [&](Val v, const auto& self) -> void {
    if (needed[v]) return;
    needed[v] = true;
    if (given(v)) return;
    for (const Val operand : body[v].used()) self(operand, self);
    if (body[v].opcode == Opcode::load || body[v].opcode == Opcode::index) {
      sources(body[v].indices[0], self);
    }
  };
  for (const std::uint32_t yield : wanted.yields) need(body.yields[yield], need);
  for (const Val v : keep_.kept_by(pass)) need(v, need);
  if (wanted.stores) {
    for (const StageStore& store : stage.stores) sources(store.offset, need);
  }
  for (Val v = 0; v < body.instructions.size(); ++v) {
    if (given(v)) needed[v] = false;
  }
  return needed;
}

Values RowBodies::in_lanes(const Stage& stage, std::size_t pass, const RowPlace& place,
                           const Wanted& wanted, const InLanes& f) {
  const std::vector<bool> is_needed = needed(stage, pass, place, wanted);
  const std::int32_t lanes = x_.blocks.lanes;
  Expr bounded;
  if (place.skewed && divides_position(stage)) {
    const std::int64_t most = sym::bounds(stage.inner.front().extent).high;
    const std::int64_t least = place.part ? 1 - lanes : 0;
    bounded =
        bound(b_, b_.index(place.base), {least, most == sym::Range::kMax ? most : most - 1}, 1);
  }
  LaneMask mask;
  if (place.chooses) mask.whole = shape_.whole(stage, place);
  Values values;
  expansion::in_lanes(b_, lanes, [&](Expr lane) {
    Lanes at{stage.inner.front().variable, lane, place.base, lanes};
    at.bounded = bounded;
    at.number = place.number;
    BodyExpander body(x_.e, stage.body, at);
    body.use(place.usage);
    if (place.part) mask.active = shape_.active(stage, place, lane);
    body.mask(mask);
    if (staged_ != nullptr) staged_->provide(stage, pass, place, lane, body);
    if (place.loaded != nullptr) {
      for (const LoadedAhead& load : *place.loaded) {
        body.know(load.value, b_.load(element_of(load.registers, place.flight, lane)));
      }
    }
    keep_.provide(pass, place, lane, body);
    // Loads first, so that all of them are in flight before one is used.
    for (Val v = 0; v < stage.body.instructions.size(); ++v) {
      const Instruction& i = stage.body[v];
      if (is_needed[v] && i.opcode == Opcode::load && i.operand_count == 0 && body.varies(v)) {
        (void)body.value(v, 0);
      }
    }
    values = f(body, lane, mask.active);
    keep_.capture(pass, place, lane, body);
  });
  return lanes == 1 ? values : Values();
}

void RowBodies::put(const Stage& stage, std::size_t pass, const RowPlace& place, const Elements& to,
                    ValueId otherwise) {
  Wanted wanted;
  wanted.yields = {0};
  in_lanes(stage, pass, place, wanted, [&](BodyExpander& body, Expr lane, ValueId active) {
    ValueId x = b_.cast(body.value(stage.body.yields[0], 0), to.dtype());
    if (active != kernel::kNone && otherwise != kernel::kNone) {
      x = select(b_, active, x, otherwise);
    }
    to.store_lane(lane, x);
    return Values();
  });
}

}  // namespace inkle::schedule::expansion
