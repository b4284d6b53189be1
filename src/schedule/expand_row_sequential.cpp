// Kernels with sequential accumulation across the rows of a part:
//
//   registers t0[count,lanes] = 0                   each thread, of the elements that it has
//   copies of row q to shared memory are in flight
//   for i1 in q .. 32 by 8 {                        a row at a time for each team of the block
//     r0 = ...                                      what it reads is taken from shared memory, then
//     copies of row i1 + 8                          the next row takes its place
//     t0[k,l] += ...
//   }
//   tree reduction of the teams' sums through shared memory
//   if q == 0 { p5[...] = t0 }
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "schedule/expand_row_staged.h"
#include "schedule/expand_rows.h"

namespace inkle::schedule::expansion {
namespace {

using kernel::AxisKind;
using loop::Opcode;

// --- Sums of columns -----------------------------------------------------------------------------

// Each thread's sums of the columns that it has, in registers; those of a block's teams are
// reduced by a tree through shared memory.
class ColumnSums {
 public:
  ColumnSums(BlockExpansion& x, const RowTeam& team)
      : x_(x), b_(x.e.b), team_(team), teams_(x.blocks.threads / x.blocks.rows().team) {}

  // Of the shared memory.
  [[nodiscard]] std::int64_t bytes() const {
    std::int64_t bytes = 0;
    for (const Scratch& scratch : x_.loops().scratch) bytes += bytes_of(scratch);
    return bytes;
  }

  void place(kernel::Memory memory) {
    const auto constant = [&](std::int64_t value) { return x_.context().constant(value); };
    memory.offset = 0;
    for (const Scratch& scratch : x_.loops().scratch) {
      joined_.push_back(kernel::kNone);
      if (bytes_of(scratch) == 0) continue;
      memory.name = fmt::format("sums{}", b_.kernel().memories.size());
      memory.dtype = scratch.dtype;
      memory.shape = {constant(teams_ / 2), constant(sums_of(x_, scratch)),
                      constant(x_.blocks.rows().team), constant(x_.blocks.lanes)};
      joined_.back() = b_.memory(memory);
      memory.offset += bytes_of(scratch);
    }
  }

  // Teams exchange whole accesses, also of elements that no row has.
  void begin() {
    const auto& scratch = x_.loops().scratch;
    const std::int64_t step = team_.members() * x_.blocks.lanes;
    const bool exact = std::all_of(scratch.begin(), scratch.end(), [&](const Scratch& s) {
      return !s.is_carried || *s.elements.constant() % step == 0;
    });
    if (teams_ == 1 || exact) return;
    each([&](std::size_t s, Expr number, Expr lane) {
      b_.store(own(s, number, lane), zero(b_, scratch[s].dtype));
    });
  }

  void join() {
    const Expr team = team_.at().number;
    for (std::int64_t half = teams_ / 2; half > 0; half /= 2) {
      const ValueId is_above = compare(b_, Opcode::greater_equal, team, half);
      const ValueId is_below = compare(b_, Opcode::less, team, 2 * half);
      where(b_, logic(b_, Opcode::bit_and, {is_above, is_below}), [&] {
        each([&](std::size_t s, Expr number, Expr lane) {
          b_.store(joined(s, team - half, number, lane), b_.load(own(s, number, lane)));
        });
      });
      b_.barrier({});
      where(b_, compare(b_, Opcode::less, team, half), [&] {
        each([&](std::size_t s, Expr number, Expr lane) {
          const Values both{b_.load(own(s, number, lane)), b_.load(joined(s, team, number, lane))};
          b_.store(own(s, number, lane), op(b_, Opcode::add, both));
        });
      });
      b_.barrier({});
    }
  }

 private:
  [[nodiscard]] std::int64_t bytes_of(const Scratch& scratch) const {
    if (!scratch.is_carried) return 0;
    return sums_of(x_, scratch) * team_.members() * x_.blocks.lanes * abi::size_of(scratch.dtype) *
           (teams_ / 2);
  }

  [[nodiscard]] kernel::MemoryId registers_of(std::size_t scratch) const {
    return x_.e.memories[x_.e.scheduled.params.size() + scratch];
  }
  [[nodiscard]] kernel::Access own(std::size_t s, Expr number, Expr lane) const {
    return element_of(registers_of(s), number, lane);
  }
  [[nodiscard]] kernel::Access joined(std::size_t s, Expr team, Expr number, Expr lane) const {
    kernel::Access access = element_of(joined_[s], number, lane);
    access.indices.insert(access.indices.begin(), team);
    access.indices.insert(access.indices.begin() + 2, team_.at().thread);
    return access;
  }

  void each(const std::function<void(std::size_t scratch, Expr number, Expr lane)>& f) {
    const auto& scratch = x_.loops().scratch;
    for (std::size_t s = 0; s < scratch.size(); ++s) {
      if (!scratch[s].is_carried || registers_of(s) == kernel::kNone) continue;
      const auto access = [&](Expr number) {
        in_lanes(b_, x_.blocks.lanes, [&](Expr lane) { f(s, number, lane); });
      };
      const std::int64_t count = sums_of(x_, scratch[s]);
      if (count == 1)
        access(x_.context().constant(0));
      else
        unrolled(b_, count, access);
    }
  }

  BlockExpansion& x_;
  kernel::Builder& b_;
  const RowTeam& team_;
  std::int64_t teams_;                    // of a block
  std::vector<kernel::MemoryId> joined_;  // of each scratch
};

// --- The launch ----------------------------------------------------------------------------------

// Threads that take rows one after the other, each with few elements of a row, need few enough
// registers for half as many of them as there could be.
std::int32_t resident_blocks_of(const BlockExpansion& x) {
  const abi::BlockRules& rules = x.e.target.blocks;
  std::int64_t elements = 0;
  for (const Scratch& scratch : x.loops().scratch) {
    if (scratch.is_carried) elements = std::max(elements, sums_of(x, scratch) * x.blocks.lanes);
  }
  const std::int32_t blocks = rules.bounded_threads / x.blocks.threads;
  return elements == 0 || elements > rules.bounded_sequential || blocks < 2 ? 0 : blocks;
}

// Rows of a part, one after the other.
std::int64_t rows_of(const BlockExpansion& x) {
  const auto& outer = x.loops().outer;
  const BlockSchedule& blocks = x.blocks;
  const std::string& name = x.e.scheduled.name;
  INKLE_CHECK(blocks.rows().keep && blocks.rows().cluster == 1,
              "kernel {} accumulates across rows that it does not keep", name);
  Expr rows = x.context().constant(1);
  for (std::size_t d = outer.size() - x.loops().sequential; d < outer.size(); ++d) {
    rows = rows * outer[d].extent;
  }
  for (const Stage& stage : x.loops().stages) {
    for (const loop::Dim& dim : stage.inner) {
      if (dim.extent.constant().value_or(0) > 0) continue;
      unsupported("kernel {}: sequential accumulation across rows of unknown length", name);
    }
  }
  if (blocks.rows().team % kWarp != 0 || !rows.is_constant() ||
      (blocks.rows().team > kWarp && blocks.threads > blocks.rows().team)) {
    unsupported("kernel {}: sequential accumulation across rows with teams of {} threads", name,
                blocks.rows().team);
  }
  return *rows.constant();
}

// A block for each part.
RowTeam launch_parts(BlockExpansion& x) {
  kernel::Builder& b = x.e.b;
  const auto& outer = x.loops().outer;
  const std::int32_t team = x.blocks.rows().team;
  std::vector<kernel::Axis>& axes = b.kernel().launch.axes;
  const std::size_t first = outer.size() - x.loops().sequential;
  for (std::size_t d = 0; d < first; ++d) {
    axes.push_back({AxisKind::grid, outer[d].variable, outer[d].extent});
  }
  if (first == 0) (void)b.axis(AxisKind::grid, x.context().constant(1));
  RowTeam::Threads at;
  const auto axis = [&](std::int64_t extent) {
    return b.axis(AxisKind::thread, x.context().constant(extent));
  };
  const auto axis_of_team = [&](std::int64_t extent) {
    at.axes.push_back(static_cast<kernel::AxisId>(axes.size()));
    return axis(extent);
  };
  if (x.blocks.threads > team) at.number = axis(x.blocks.threads / team);
  if (team > kWarp) at.warp = axis_of_team(team / kWarp);
  at.lane = axis_of_team(kWarp);
  at.thread = team > kWarp ? at.warp * std::int64_t{kWarp} + at.lane : at.lane;
  b.kernel().launch.resident_blocks = resident_blocks_of(x);
  return {x, std::move(at)};
}

// --- The loop ------------------------------------------------------------------------------------

// Rows in flight, and later the sums of half of the teams, in the same bytes.
void share_memory(BlockExpansion& x, StagedRows& staged, ColumnSums& sums) {
  const std::int64_t bytes = std::max(staged.bytes(), sums.bytes());
  if (bytes > kStaticShared) {
    unsupported("kernel {}: {} bytes of shared memory for column sums, at most {}",
                x.e.scheduled.name, bytes, kStaticShared);
  }
  if (bytes == 0) return;
  kernel::Memory memory;
  memory.name = "rows";
  memory.space = kernel::Space::shared;
  memory.dtype = DType::u8;
  memory.shape = {x.context().constant(bytes)};
  memory.alignment = 16;
  memory.of = x.e.b.memory(memory);
  staged.place(memory);
  sums.place(memory);
}

// Each team has the rows from `first` on that are `teams` apart.
void each_row(BlockExpansion& x, std::int64_t rows, Expr first, std::int64_t teams,
              const Values& carried,
              const std::function<Values(Expr row, const Values& carried)>& body) {
  const auto& outer = x.loops().outer;
  const bool is_one = x.loops().sequential == 1;
  kernel::Loop info;
  info.begin = first;
  info.end = x.context().constant(rows);
  info.step = x.context().constant(teams);
  if (is_one) info.variable = outer.back().variable;
  x.e.b.loop(std::move(info), carried, [&](Expr row, const Values& before) {
    if (!is_one) bind_outer(x, row, outer.size() - x.loops().sequential, outer.size());
    return body(row, before);
  });
}

}  // namespace

void expand_sequential_rows(BlockExpansion& x) {
  const std::int64_t rows = rows_of(x);
  const std::int64_t teams = x.blocks.threads / x.blocks.rows().team;
  const RowTeam team = launch_parts(x);
  declare_row_scratch(x, team);
  const RowShape shape(x, team);
  KeptRow keep(x, shape);
  RowLoops loops(x, team, shape);
  StagedRows staged(x, team, shape, loops, keep);
  ColumnSums sums(x, team);
  share_memory(x, staged, sums);
  sums.begin();
  RowStages stages(x, team, shape, loops, keep, &staged);
  stages.phase(Phase::first);
  const Expr first = teams > 1 ? team.at().number : x.context().constant(0);
  Values scalars = staged.zeros();
  const std::size_t passes = keep.passes().size();
  for (std::size_t p = 0; p < passes; ++p) scalars = staged.copy_row(p, first, rows, scalars);
  each_row(x, rows, first, teams, scalars, [&](Expr row, const Values& own) {
    staged.set_scalars(own);
    Values next = own;
    for (std::size_t p = 0; p < passes; ++p) {
      if (keep.stage_of(p).stage.phase != Phase::each) continue;
      stages.pass(p);
      next = staged.copy_row(p, row + teams, rows, next);
    }
    return next;
  });
  staged.set_scalars({});
  if (teams == 1) return stages.phase(Phase::last);
  if (!staged.empty()) x.e.b.barrier({});
  sums.join();
  where(x.e.b, compare(x.e.b, Opcode::equal, team.at().number, 0),
        [&] { stages.phase(Phase::last); });
}

}  // namespace inkle::schedule::expansion
