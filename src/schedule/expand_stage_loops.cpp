#include "schedule/expand_stage_loops.h"

#include <algorithm>
#include <bit>

#include "base/error.h"

namespace inkle::schedule::expansion {

using loop::Opcode;

namespace {

// Independent copies of a body hide the latency of its operations (an addition takes 4 cycles, 2
// start in each); a long body has enough to do by itself and would only spill.
constexpr int kLightBody = 16;
constexpr int kMediumBody = 48;

// Where the order of a row's terms is fixed the body's weight, of which fusion decides, says
// nothing.
constexpr int kCopiesOfRows = 2;

// Terms that one accumulator takes before it is added to its total, which has twice the digits of
// f32: the error of a sum is that of a chain so long. Merging costs as much as about four terms.
constexpr std::int64_t kChunk = 32;
// Fewer terms than this to an accumulator are added up in one chain.
constexpr std::int64_t kShortChain = 64;
// Rows of so few terms to an accumulator have moments whose lanes meet in f32, too: in f64 a layer
// norm of 2048x64 takes 36 us instead of 31, one of 512x768 as long as in f32 (a core with
// AVX-512).
constexpr std::int64_t kShortRow = 4;

}  // namespace

StageLoops::StageLoops(Expansion& expansion, const Stage& stage, const Lanes* columns)
    : expansion_(expansion), b_(expansion.b), stage_(stage), columns_(columns) {
  if (stage.association == Association::columns && columns == nullptr) columns_ = &one_column_;
  for (const loop::Dim& dim : stage.inner) {
    may_be_empty_ = may_be_empty_ || sym::bounds(dim.extent).low < 1;
  }
  choose_shape();
  find_chunks();
}

void StageLoops::choose_shape() {
  if (columns_ != nullptr) {
    shape_ = *columns_;
    return;
  }
  const bool is_serial = stage_.kind == StageKind::scan || stage_.kind == StageKind::scatter;
  if (stage_.inner.empty() || is_serial) return;
  shape_.lanes = std::max(expansion_.schedule.lanes, 1);
  shape_.copies = std::max(expansion_.schedule.unroll, 1);
  const int weight = weight_of(stage_.body);
  if (stage_.association == Association::rows) {
    shape_.copies = std::min(shape_.copies, kCopiesOfRows);
  } else if (stage_.kind == StageKind::pointwise) {
    shape_.copies = weight <= kLightBody ? std::min(shape_.copies, 2) : 1;
  } else if (weight > kLightBody) {
    shape_.copies = weight <= kMediumBody ? std::min(shape_.copies, 2) : 1;
  }
  if (const auto extent = stage_.inner.back().extent.constant(); extent && !is_fixed()) {
    const auto least =
        std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(*extent, 1)));
    shape_.lanes =
        static_cast<int>(std::min<std::uint64_t>(static_cast<std::uint64_t>(shape_.lanes), least));
  }
  if (shape_.lanes == 1) shape_.copies = 1;
  shape_.variable = stage_.inner.back().variable;
}

// Steps of an inner loop, at its hint or at most.
std::int64_t StageLoops::steps(std::size_t level, bool most) const {
  const Expr extent = stage_.inner[level].extent;
  const std::int64_t count = most ? sym::bounds(extent).high : sym::hint(extent).value_or(1024);
  if (columns_ != nullptr || level + 1 < stage_.inner.size() || shape_.lanes == 1) return count;
  const std::int64_t group = std::int64_t{shape_.lanes} * shape_.copies;
  return count / group + (count % group + shape_.lanes - 1) / shape_.lanes;
}

// The loop that is split in chunks: the innermost that makes one of kChunk / 2 terms or more with
// what is inside of it.
void StageLoops::find_chunks() {
  if (is_fixed()) {  // whatever is known of extents
    is_long_ = !stage_.inner.empty();
    chunk_level_ = stage_.inner.size() - 1;
    chunk_steps_ = kChunk;
    return;
  }
  double most = 1;
  for (std::size_t level = stage_.inner.size(); level-- > 0;) {
    most *= static_cast<double>(steps(level, true));
  }
  is_long_ = most > kShortChain;
  is_short_ = most <= kShortRow;
  std::int64_t inside = 1;
  for (chunk_level_ = stage_.inner.size(); chunk_level_-- > 0;) {
    const std::int64_t here = std::max<std::int64_t>(steps(chunk_level_, false), 1);
    chunk_steps_ = std::max<std::int64_t>(1, kChunk / inside);
    if (chunk_level_ == 0 || inside * here >= kChunk / 2) break;
    inside *= here;
  }
}

Values StageLoops::in_lanes(const std::function<Values()>& run) {
  if (columns_ != nullptr || shape_.lanes == 1) return run();
  return b_.vector(shape_.lanes, shape_.lanes, [&](Expr lane) {
    shape_.lane = lane;
    return run();
  });
}

Values StageLoops::guarded(const Values& otherwise, const std::function<Values()>& run) {
  if (!may_be_empty_) return run();
  ValueId some = kernel::kNone;
  for (const loop::Dim& dim : stage_.inner) {
    if (sym::bounds(dim.extent).low >= 1) continue;
    const ValueId positive =
        logic(b_, Opcode::greater, {b_.index(dim.extent), b_.integer(DType::i64, 0)});
    some = some == kernel::kNone ? positive : logic(b_, Opcode::bit_and, {some, positive});
  }
  return b_.branch(some, run, [&] { return otherwise; });
}

Values StageLoops::at_point(const Lanes& group, int first_copy, const Values& carried,
                            const Point& point) {
  BodyExpander body(expansion_, stage_.body, group);
  return point(body, group, first_copy, carried);
}

Values StageLoops::nest(const Values& carried, const Chunks* chunks, const Point& point) {
  return nest(0, carried, chunks, point);
}

Values StageLoops::nest(std::size_t level, const Values& carried, const Chunks* chunks,
                        const Point& point) {
  const std::size_t last = stage_.inner.size();
  if (level == last) {
    return at_point(columns_ == nullptr ? Lanes() : *columns_, 0, carried, point);
  }
  const loop::Dim& dim = stage_.inner[level];
  const Chunks* here = level == chunk_level_ ? chunks : nullptr;
  if (columns_ == nullptr && level + 1 == last && shape_.lanes > 1) {
    const LaneRange range{b_.context().constant(0), dim.extent,
                          is_fixed() ? std::nullopt : dim.extent.constant()};
    return lane_loop(expansion_, shape_, range, carried, here,
                     [&](const Lanes& group, int first_copy, const Values& values) {
                       return at_point(group, first_copy, values, point);
                     });
  }
  return scalar_loop(expansion_, dim, carried, here,
                     [&](const Values& values) { return nest(level + 1, values, chunks, point); });
}

Values StageLoops::first(const Point& point) {
  const std::size_t before = expansion_.replaced.size();
  for (const loop::Dim& dim : stage_.inner) {
    expansion_.replaced.emplace_back(dim.variable, b_.context().constant(0));
  }
  Values result = at_point(*columns_, 0, {}, point);
  expansion_.replaced.resize(before);
  return result;
}

}  // namespace inkle::schedule::expansion
