#include "schedule/expand_row_shape.h"

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace inkle::schedule::expansion {

using loop::Instruction;
using loop::Opcode;
using loop::Val;

namespace {

// Whether e is the same for all elements of a row, and known before them.
bool is_of_row(const BlockExpansion& x, Expr e, Expr variable) {
  const auto& sizes = x.e.scheduled.sizes;
  const auto& outer = x.loops().outer;
  const auto symbols = sym::symbols(e);
  return std::all_of(symbols.begin(), symbols.end(), [&](Expr s) {
    return s == variable || std::find(sizes.begin(), sizes.end(), s) != sizes.end() ||
           std::any_of(outer.begin(), outer.end(),
                       [&](const loop::Dim& dim) { return dim.variable == s; });
  });
}

}  // namespace

bool is_direct(const BlockExpansion& x, const Stage& stage, const Instruction& load) {
  return load.opcode == Opcode::load && load.operand_count == 0 &&
         is_of_row(x, load.indices[0], stage.inner.front().variable);
}

std::int64_t above(std::int64_t value, std::int64_t more) {
  return value > std::numeric_limits<std::int64_t>::max() - more ? sym::Range::kMax : value + more;
}

RowShape::RowShape(BlockExpansion& x, const RowTeam& team)
    : x_(x), b_(x.e.b), position_(team.at().thread), step_(team.members() * x.blocks.lanes) {
  if (position_.kind() == sym::Kind::add) {
    position_ = bind_new(x, position_, x.context().constant(team.members()));
  }
  if (x.blocks.lanes > 1) find_skew();
}

void RowShape::find_skew() {
  const auto look_at = [&](const Stage& stage, Expr offset) {
    const Expr variable = stage.inner.front().variable;
    const auto stride = sym::stride(offset, variable);
    if (!start_.is_null() || !stride || !stride->is_constant(1)) return;
    const std::pair<Expr, Expr> map[] = {{variable, x_.context().constant(0)}};
    const Expr start = sym::substitute(offset, map);
    if (!is_of_row(x_, start, {}) || sym::divides(x_.blocks.lanes, start)) return;
    start_ = start;
    start_extent_ = stage.inner.front().extent;
  };
  for (const PreparedStage& prepared : x_.prepared.stages) {
    const Stage& stage = prepared.stage;
    if (stage.inner.empty() || !is_ragged(stage)) continue;
    for (const Instruction& i : stage.body.instructions) {
      if (i.opcode == Opcode::load && i.buffer < x_.e.scheduled.params.size()) {
        look_at(stage, i.indices[0]);
      }
    }
    for (const StageStore& store : stage.stores) look_at(stage, store.offset);
  }
  if (start_.is_null()) return;
  const auto& outer = x_.loops().outer;
  for (std::size_t d = outer.size() - x_.loops().sequential; d < outer.size(); ++d) {
    if (!sym::contains(start_, outer[d].variable)) continue;
    unsupported("kernel {}: sequential rows that are not aligned to a vector access",
                x_.e.scheduled.name);
  }
  const std::int64_t lanes = x_.blocks.lanes;
  const sym::Range range = sym::bounds(start_);
  skew_ = bound(b_, b_.index(sym::mod(start_, lanes)), {0, lanes - 1}, 1);
  aligned_ = bound(b_, b_.index(start_ - skew_),
                   {range.low >= 0 ? 0 : sym::Range::kMin, range.high}, lanes);
}

bool RowShape::is_skewed(const Stage& stage) const {
  return !start_.is_null() && stage.inner.front().extent == start_extent_;
}

bool RowShape::is_ragged(const Stage& stage) const {
  return x_.blocks.lanes > 1 && !sym::divides(x_.blocks.lanes, stage.inner.front().extent);
}

std::int64_t RowShape::accesses_of(const Stage& stage) const {
  const std::int64_t size =
      *stage.inner.front().extent.constant() + (is_skewed(stage) ? x_.blocks.lanes - 1 : 0);
  return (size + step_ - 1) / step_;
}

RowShape::Rest RowShape::after_skew() const {
  const std::int64_t lanes = x_.blocks.lanes;
  const ValueId missing = b_.compute(Opcode::sub, DType::i32,
                                     {b_.integer(DType::i32, lanes), b_.index(skew_, DType::i32)});
  const ValueId within = op(b_, Opcode::bit_and, {missing, b_.integer(DType::i32, lanes - 1)});
  const Expr head = bound(b_, b_.cast(within, DType::i64), {0, lanes - 1}, 1);
  const sym::Range range = sym::bounds(start_);
  const Expr origin =
      bound(b_, b_.index(start_ + head),
            {range.low >= 0 ? 0 : sym::Range::kMin, above(range.high, lanes)}, lanes);
  return {head, origin - start_};
}

ValueId RowShape::active(const Stage& stage, const RowPlace& place, Expr lane) const {
  const ValueId before_end = less(b_, lane, stage.inner.front().extent - place.base);
  if (!place.skewed) return before_end;
  const Expr first = x_.context().constant(0) - place.base;
  const ValueId begun = compare(b_, Opcode::greater_equal, lane, first);
  return logic(b_, Opcode::bit_and, {begun, before_end});
}

ValueId RowShape::whole(const Stage& stage, const RowPlace& place) const {
  const ValueId before_end =
      less(b_, place.base + (x_.blocks.lanes - 1), stage.inner.front().extent);
  if (!place.skewed) return before_end;
  const ValueId begun = compare(b_, Opcode::greater_equal, place.base, 0);
  return logic(b_, Opcode::bit_and, {begun, before_end});
}

void RowShape::load(const Stage& stage, const RowPlace& place, Expr number,
                    const std::vector<LoadedAhead>& loads) const {
  in_lanes(b_, x_.blocks.lanes, [&](Expr lane) {
    BodyExpander body(x_.e, stage.body,
                      {stage.inner.front().variable, lane, place.base, x_.blocks.lanes});
    body.use(place.usage);
    if (place.part) body.mask({.active = active(stage, place, lane)});
    for (const LoadedAhead& load : loads) {
      b_.store(element_of(load.registers, number, lane), body.value(load.value, 0));
    }
  });
}

bool RowShape::is_packed(const Stage& stage, Val v) const {
  if (!is_direct(x_, stage, stage.body[v])) return false;
  const std::int64_t width = packed_lanes(stage, v);
  return width > 1 || (width == 1 && is_skewed(stage));
}

std::int64_t RowShape::packed_lanes(const Stage& stage, Val v) const {
  const Instruction& load = stage.body[v];
  const std::size_t params = x_.e.scheduled.params.size();
  const std::int64_t lanes = x_.blocks.lanes;
  if (lanes == 1 || load.buffer >= params) return 0;
  sym::Context& context = x_.context();
  const Expr lane = context.index(context.constant(lanes));
  Expr base = context.index(context.constant(std::int64_t{1} << 30)) * lanes;
  if (is_skewed(stage)) base = base + shift();
  const std::pair<Expr, Expr> map[] = {{stage.inner.front().variable, base + lane}};
  const Expr place = split_lanes(sym::substitute(load.indices[0], map), lane, lanes);
  const auto stride = sym::stride(place, lane);
  if (!stride || !stride->is_constant(1)) return 0;
  const std::int64_t size = abi::size_of(load.dtype);
  const std::int32_t alignment = x_.e.scheduled.params[load.buffer].alignment;
  std::int64_t width = lanes;
  while (width > 1 && alignment % (width * size) != 0 && alignment % 16 != 0) width /= 2;
  while (width > 1 && !sym::divides(width, place - lane)) width /= 2;
  return width;
}

}  // namespace inkle::schedule::expansion
