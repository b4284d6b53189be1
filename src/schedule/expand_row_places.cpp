// The places at which threads work along rows: accesses of kept rows, several accesses in flight,
// rows that start anywhere in memory.
#include <algorithm>
#include <limits>

#include "base/error.h"
#include "schedule/expand_rows.h"
#include "sym/symbols.h"

namespace inkle::schedule::expansion {

using kernel::LoopKind;
using loop::Instruction;
using loop::Opcode;
using loop::Val;

namespace {

constexpr std::int64_t kMostInt = std::numeric_limits<std::int32_t>::max();

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

std::int64_t above(std::int64_t value, std::int64_t more) {
  return value > std::numeric_limits<std::int64_t>::max() - more ? sym::Range::kMax : value + more;
}

}  // namespace

kernel::Loop multiples(sym::Context& context, Expr begin, Expr end, std::int64_t step,
                       std::int64_t divisor) {
  kernel::Loop info;
  info.begin = begin;
  info.end = end;
  info.step = context.constant(step);
  sym::SymbolInfo facts = kernel::facts_of(info);
  facts.divisor = std::max(facts.divisor, divisor);
  facts.range.low = std::max(facts.range.low, sym::bounds(begin).low);
  info.variable = sym::fresh(context, facts);
  return info;
}

// --- Where rows start ----------------------------------------------------------------------------

void RowExpander::find_skew() {
  if (blocks_.lanes == 1) return;
  const auto look_at = [&](const Stage& stage, Expr offset) {
    const Expr variable = stage.inner.front().variable;
    const auto stride = sym::stride(offset, variable);
    if (!start_.is_null() || !stride || !stride->is_constant(1)) return;
    const std::pair<Expr, Expr> map[] = {{variable, constant(0)}};
    const Expr start = sym::substitute(offset, map);
    const auto symbols = sym::symbols(start);
    const bool known =
        std::all_of(symbols.begin(), symbols.end(), [&](Expr s) { return is_known(s); });
    if (!known || sym::divides(blocks_.lanes, start)) return;
    start_ = start;
    start_extent_ = stage.inner.front().extent;
  };
  for (const PreparedStage& prepared : x_.prepared.stages) {
    const Stage& stage = prepared.stage;
    if (stage.inner.empty() || sym::divides(blocks_.lanes, stage.inner.front().extent)) continue;
    for (const Instruction& i : stage.body.instructions) {
      if (i.opcode == Opcode::load && i.buffer < x_.e.scheduled.params.size()) {
        look_at(stage, i.indices[0]);
      }
    }
    for (const StageStore& store : stage.stores) look_at(stage, store.offset);
  }
  if (start_.is_null()) return;
  const auto& outer = x_.loops().outer;
  for (std::size_t d = outer.size() - x_.loops().walked; d < outer.size(); ++d) {
    if (!sym::contains(start_, outer[d].variable)) continue;
    unsupported("kernel {}: walks rows at odd places", x_.e.scheduled.name);
  }
  const sym::Range range = sym::bounds(start_);
  skew_ = bound(b_.index(sym::mod(start_, blocks_.lanes)), {0, blocks_.lanes - 1}, 1);
  aligned_ = bound(b_.index(start_ - skew_), {range.low >= 0 ? 0 : sym::Range::kMin, range.high},
                   blocks_.lanes);
}

bool RowExpander::is_skewed(const Stage& stage) const {
  return !start_.is_null() && stage.inner.front().extent == start_extent_;
}

bool RowExpander::is_ragged(const Stage& stage) const {
  return blocks_.lanes > 1 && !sym::divides(blocks_.lanes, stage.inner.front().extent);
}

std::int64_t RowExpander::accesses_of(const Stage& stage) const {
  const std::int64_t size =
      *stage.inner.front().extent.constant() + (is_skewed(stage) ? blocks_.lanes - 1 : 0);
  return (size + step() - 1) / step();
}

Expr RowExpander::bound(ValueId value, sym::Range range, std::int64_t divisor) {
  const Expr symbol = sym::fresh(x_.context(), {.range = range, .divisor = divisor});
  b_.operation(kernel::Op::bind, {value}, {kernel::scalar_type(DType::i64)},
               kernel::Symbolic{symbol, {}});
  return symbol;
}

// --- Conditions ----------------------------------------------------------------------------------

Values RowExpander::where(ValueId condition, const Values& carried,
                          const std::function<Values()>& f) {
  return b_.branch(condition, f, [&] { return carried; });
}

Values RowExpander::if_below(Expr a, Expr b, const Values& carried,
                             const std::function<Values()>& f) {
  if (sym::less(a, b) == true) return f();
  return where(less(x_, a, b), carried, f);
}

ValueId RowExpander::active(const Stage& stage, const RowPlace& place, Expr lane) {
  const ValueId before_end = less(x_, lane, stage.inner.front().extent - place.base);
  if (!place.skewed) return before_end;
  const ValueId begun =
      logic(Opcode::greater_equal, {b_.index(lane), b_.index(constant(0) - place.base)});
  return logic(Opcode::bit_and, {begun, before_end});
}

ValueId RowExpander::whole(const Stage& stage, const RowPlace& place) {
  const ValueId before_end = less(x_, place.base + (blocks_.lanes - 1), stage.inner.front().extent);
  if (!place.skewed) return before_end;
  const ValueId begun = logic(Opcode::greater_equal, {b_.index(place.base), b_.index(constant(0))});
  return logic(Opcode::bit_and, {begun, before_end});
}

// Lanes are looked at one by one only where a row begins or ends.
Values RowExpander::whole_or_part(const Stage& stage, const RowPlace& place, const Values& carried,
                                  const AtPlace& f) {
  if (!is_ragged(stage)) return f(place, carried);
  RowPlace part = place;
  part.part = true;
  return b_.branch(
      whole(stage, place), [&] { return f(place, carried); }, [&] { return f(part, carried); });
}

// --- Loops along a row ---------------------------------------------------------------------------

Values RowExpander::kept(const Stage& stage, const Usage& usage, const Values& carried,
                         const AtPlace& f) {
  const Expr n = stage.inner.front().extent;
  const std::int64_t count = accesses_of(stage);
  RowPlace place;
  place.usage = usage;
  place.skewed = is_skewed(stage);
  const auto at = [&](Expr number, const Values& before) {
    place.number = number;
    place.base = position_ * std::int64_t{blocks_.lanes} + number * step();
    if (place.skewed) place.base = place.base + aligned_ - start_;
    const auto access = [&] { return whole_or_part(stage, place, before, f); };
    if (!place.skewed && *n.constant() % step() == 0) return access();
    return if_below(place.base, n, before, access);
  };
  if (count == 1) return at(constant(0), carried);
  return b_.loop(LoopKind::unroll, constant(count), carried, at);
}

// Loads of the stage that can be under way together.
void RowExpander::find_batch(const Stage& stage) {
  batch_.clear();
  if (blocks_.unroll <= 1) return;
  for (Val v = 0; v < stage.body.instructions.size(); ++v) {
    if (!is_direct(stage, stage.body[v]) || !is_packed(stage, v)) continue;
    batch_.push_back({v, registers("b", stage.body[v].dtype, {blocks_.unroll, blocks_.lanes})});
  }
}

Values RowExpander::looped(const Stage& stage, const Values& carried, const AtPlace& f) {
  const Expr n = stage.inner.front().extent;
  const bool last = stage.kind == StageKind::pointwise && !stage.stores.empty();
  RowPlace place;
  place.skewed = is_skewed(stage);
  place.usage.lasts = blocks_.lasting;
  place.usage.leaves = last && reads_twice_;
  place.usage.streams =
      stage.kind == StageKind::reduction ? !is_read_again(x_, stage) : last && reads_twice_;
  reads_twice_ = reads_twice_ || is_read_again(x_, stage);
  find_batch(stage);
  if (!batch_.empty()) {
    const Values after =
        is_ragged(stage) ? ragged(stage, place, carried, f) : batched(stage, place, carried, f);
    batch_.clear();
    return after;
  }
  place.usage.streams = false;
  const Expr first = position_ * std::int64_t{blocks_.lanes};
  kernel::Loop info =
      multiples(x_.context(), first, place.skewed ? n + skew_ : n, step(), blocks_.lanes);
  info.unroll = blocks_.unroll;
  return b_.loop(std::move(info), carried, [&](Expr at, const Values& before) {
    place.base = place.skewed ? at + aligned_ - start_ : at;
    return whole_or_part(stage, place, before, f);
  });
}

// Several accesses of a row are in flight before the first is used.
Values RowExpander::batched(const Stage& stage, const RowPlace& place, const Values& carried,
                            const AtPlace& f) {
  const Expr n = stage.inner.front().extent;
  const std::int64_t all = step() * blocks_.unroll;
  const auto size = n.constant();
  const Expr first = position_ * std::int64_t{blocks_.lanes};
  kernel::Loop info = multiples(x_.context(), first, n, all, blocks_.lanes);
  return b_.loop(std::move(info), carried, [&](Expr start, const Values& before) {
    return in_flight(stage, start, size && *size % all == 0 ? Expr() : n, place, before, f);
  });
}

// `unroll` accesses from `first` on: their loads, then what is done with them. Those at `end` and
// beyond do not exist.
Values RowExpander::in_flight(const Stage& stage, Expr first, Expr end, const RowPlace& place,
                              const Values& carried, const AtPlace& f) {
  RowPlace at = place;
  const auto each = [&](const Values& states, const AtPlace& access) {
    return b_.loop(LoopKind::unroll, constant(blocks_.unroll), states,
                   [&](Expr u, const Values& before) {
                     at.flight = u;
                     at.base = first + u * step();
                     const auto inside = [&] { return access(at, before); };
                     return end.is_null() ? inside() : if_below(at.base, end, before, inside);
                   });
  };
  (void)each({}, [&](const RowPlace& access, const Values&) {
    in_vector([&](Expr lane) {
      BodyExpander body(x_.e, stage.body,
                        {stage.inner.front().variable, lane, access.base, blocks_.lanes});
      body.use(access.usage);
      for (const Ahead& load : batch_) {
        const ValueId value = body.value(load.value, 0);
        b_.store(element_of(load.registers, access.flight, lane), value);
      }
    });
    return Values();
  });
  return each(carried, f);
}

ValueId RowExpander::masked(ValueId value, std::int64_t mask) {
  return op(Opcode::bit_and, {value, b_.integer(b_.type_of(value).dtype, mask)});
}

// Rows that are no whole number of accesses: the first thread has what comes before the first whole
// access, the last one what comes after the last, and between them lanes are not looked at.
Values RowExpander::ragged(const Stage& stage, const RowPlace& place, const Values& carried,
                           const AtPlace& f) {
  std::vector<Ahead> loads;  // known in the loop of several accesses alone
  loads.swap(batch_);
  Values states = carried;
  Ragged row{constant(0), constant(0)};
  if (place.skewed) {
    RowPlace part = place;
    part.part = true;
    part.base = aligned_ - start_;
    const ValueId odd = logic(Opcode::not_equal, {b_.index(skew_), b_.index(constant(0))});
    states = where(logic(Opcode::bit_and, {is_first_thread(), odd}), states,
                   [&] { return f(part, states); });
    row = after_skew();
  }
  states = whole_accesses(stage, place, row, std::move(loads), states, f);
  const ValueId last = logic(Opcode::equal, {b_.index(thread_), b_.index(constant(members() - 1))});
  return where(last, states, [&] { return ragged_end(stage, place, row, states, f); });
}

RowExpander::Ragged RowExpander::after_skew() {
  const std::int64_t lanes = blocks_.lanes;
  const ValueId missing = b_.compute(Opcode::sub, DType::i32,
                                     {b_.integer(DType::i32, lanes), b_.index(skew_, DType::i32)});
  const Expr head = bound(b_.cast(masked(missing, lanes - 1), DType::i64), {0, lanes - 1}, 1);
  const sym::Range range = sym::bounds(start_);
  const Expr origin =
      bound(b_.index(start_ + head),
            {range.low >= 0 ? 0 : sym::Range::kMin, above(range.high, lanes)}, lanes);
  return {head, origin - start_};
}

Values RowExpander::whole_accesses(const Stage& stage, const RowPlace& place, const Ragged& row,
                                   std::vector<Ahead> loads, Values states, const AtPlace& f) {
  const Expr n = stage.inner.front().extent - row.head;
  const std::int64_t lanes = blocks_.lanes;
  const std::int64_t all = step() * blocks_.unroll;
  const std::int64_t most = above(sym::bounds(n).high, all);
  RowPlace whole = place;
  Expr first = position_ * lanes;
  const Expr end = n - (step() * (blocks_.unroll - 1) + lanes - 1);
  if (sym::less_equal(end, constant(0)) != true) {
    // Where the next loop begins is carried along.
    const DType type = most <= kMostInt ? DType::i32 : DType::i64;
    states.push_back(b_.index(first, type));
    kernel::Loop several = multiples(x_.context(), first, end, all, lanes);
    states = b_.loop(std::move(several), states, [&](Expr start, const Values& before) {
      batch_.swap(loads);
      Values after = in_flight(stage, start + row.shift, {}, whole,
                               Values(before.begin(), before.end() - 1), f);
      batch_.swap(loads);
      after.push_back(b_.index(start + all, type));
      return after;
    });
    first = bound(b_.cast(states.back(), DType::i64), {0, most}, lanes);
    states.pop_back();
  }
  kernel::Loop one = multiples(x_.context(), first, n - (lanes - 1), step(), lanes);
  return b_.loop(std::move(one), states, [&](Expr start, const Values& before) {
    whole.base = start + row.shift;
    return f(whole, before);
  });
}

Values RowExpander::ragged_end(const Stage& stage, const RowPlace& place, const Ragged& row,
                               const Values& states, const AtPlace& f) {
  const Expr n = stage.inner.front().extent;
  const std::int64_t lanes = blocks_.lanes;
  Expr at = sym::floordiv(n - row.head, lanes) * lanes;
  if (!at.is_constant()) {
    const std::int64_t most = sym::bounds(n).high;
    const bool reaches = sym::bounds(n).low >= lanes - 1;  // the first whole access
    const DType type = most <= kMostInt ? DType::i32 : DType::i64;
    const ValueId rounded = masked(b_.index(n - row.head, type), -lanes);
    at = bound(b_.cast(rounded, DType::i64), {reaches ? 0 : -lanes, most}, lanes);
  }
  RowPlace part = place;
  part.part = true;
  part.base = at + row.shift;
  return if_below(constant(-1), at, states,
                  [&] { return if_below(part.base, n, states, [&] { return f(part, states); }); });
}

// --- One access ----------------------------------------------------------------------------------

kernel::Access RowExpander::element_of(kernel::MemoryId memory, Expr number, Expr lane) const {
  kernel::Access access;
  access.memory = memory;
  access.indices = {number, lane.is_null() ? constant(0) : lane};
  access.form = lane.is_null() ? kernel::Form::each : kernel::Form::wide;
  return access;
}

void RowExpander::in_vector(const std::function<void(Expr lane)>& f) {
  if (blocks_.lanes == 1) return f({});
  b_.vector(blocks_.lanes, blocks_.lanes, [&](Expr lane) {
    f(lane);
    return Values();
  });
}

void RowExpander::provide(const Stage& stage, std::size_t pass, const RowPlace& place, Expr lane,
                          BodyExpander& body) {
  provide_row(stage, pass, place, lane, body);
  for (const Ahead& load : batch_) {
    body.know(load.value, b_.load(element_of(load.registers, place.flight, lane)));
  }
  for (const KeepPlan::Use& use : keep_.known[pass]) {
    body.know(use.value, b_.load(element_of(kept_[use.kept], place.number, lane)));
  }
  for (std::size_t k = 0; k < keep_.kept.size(); ++k) {
    const KeptValue& kept = keep_.kept[k];
    if (kept.first_pass != pass || !fetched_[k]) continue;
    body.know(kept.value, b_.load(element_of(kept_[k], place.number, lane)));
  }
}

void RowExpander::capture(std::size_t pass, const RowPlace& place, Expr lane, BodyExpander& body) {
  for (std::size_t k = 0; k < keep_.kept.size(); ++k) {
    const KeptValue& kept = keep_.kept[k];
    if (kept.first_pass != pass || fetched_[k]) continue;
    b_.store(element_of(kept_[k], place.number, lane), body.value(kept.value, 0));
  }
}

Values RowExpander::in_lanes(const Stage& stage, std::size_t pass, const RowPlace& place,
                             const Wanted& wanted, const InLanes& f) {
  const std::vector<bool> is_needed = needed(stage, pass, wanted);
  Expr bounded;
  if (place.skewed && divides_position(stage)) {
    const std::int64_t most = sym::bounds(stage.inner.front().extent).high;
    const std::int64_t least = place.part ? 1 - blocks_.lanes : 0;
    bounded = bound(b_.index(place.base), {least, above(most, -1)}, 1);
  }
  const ValueId is_whole = place.chooses ? whole(stage, place) : ValueId{kernel::kNone};
  const auto inside = [&](Expr lane) {
    Lanes shape{stage.inner.front().variable, lane, place.base, blocks_.lanes};
    shape.bounded = bounded;
    shape.number = place.number;
    BodyExpander body(x_.e, stage.body, shape);
    body.use(place.usage);
    LaneMask mask;
    if (place.part) mask.active = active(stage, place, lane);
    if (place.chooses) mask.whole = is_whole;
    body.mask(mask);
    provide(stage, pass, place, lane, body);
    // Loads first, so that all of them are on their way before one is used.
    for (Val v = 0; v < stage.body.instructions.size(); ++v) {
      const Instruction& i = stage.body[v];
      if (is_needed[v] && i.opcode == Opcode::load && i.operand_count == 0 && body.varies(v)) {
        (void)body.value(v, 0);
      }
    }
    Values values = f(body, lane, mask.active);
    capture(pass, place, lane, body);
    return values;
  };
  if (blocks_.lanes == 1) return inside({});
  in_vector([&](Expr lane) { (void)inside(lane); });
  return {};
}

}  // namespace inkle::schedule::expansion
