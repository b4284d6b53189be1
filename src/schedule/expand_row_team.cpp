#include "schedule/expand_row_team.h"

#include <utility>

#include "base/error.h"

namespace inkle::schedule::expansion {

using kernel::AxisKind;
using loop::Opcode;

RowTeam::RowTeam(BlockExpansion& x, Threads threads) : x_(x), b_(x.e.b), at_(std::move(threads)) {}

std::int64_t RowTeam::members() const {
  return std::int64_t{x_.blocks.rows().team} * x_.blocks.rows().cluster;
}

ValueId RowTeam::is_first_thread() const { return compare(b_, Opcode::equal, at_.thread, 0); }

ValueId RowTeam::is_last_thread() const {
  return compare(b_, Opcode::equal, at_.thread, members() - 1);
}

// Sequential rows double-buffer the memory, so that no thread overwrites what others still read.
Values RowTeam::join(const Values& states, const Merge& merge) const {
  if (members() == 1) return states;
  const std::int32_t warps = x_.blocks.rows().team / kWarp;
  kernel::Collective team;
  team.axes = at_.axes;
  if (warps > 1) {
    std::vector<std::int64_t> shape{warps};
    if (x_.loops().sequential != 0) shape.insert(shape.begin(), 2);
    for (const ValueId state : states) {
      team.scratch.push_back(shared(b_, "s", b_.type_of(state).dtype, shape));
    }
  }
  const Values own = b_.reduce(std::move(team), states, merge);
  return x_.blocks.rows().cluster > 1 ? join_cluster(own, merge) : own;
}

Values RowTeam::join_cluster(const Values& states, const Merge& merge) const {
  std::vector<kernel::MemoryId> own;
  for (const ValueId state : states) own.push_back(shared(b_, "s", b_.type_of(state).dtype, {1}));
  const Expr first = x_.context().constant(0);
  where(b_, compare(b_, Opcode::equal, at_.warp * std::int64_t{kWarp} + at_.lane, 0), [&] {
    for (std::size_t s = 0; s < states.size(); ++s) b_.store(own[s], {first}, states[s]);
  });
  b_.barrier({.scope = kernel::Scope::cluster});
  Values all;
  for (std::int64_t block = 0; block < x_.blocks.rows().cluster; ++block) {
    const ValueId rank = b_.integer(DType::i64, block);
    Values part;
    for (std::size_t s = 0; s < states.size(); ++s) {
      kernel::Access access;
      access.memory = own[s];
      access.indices = {first};
      access.remote = true;
      part.push_back(
          b_.operation(kernel::Op::load, {rank}, {b_.type_of(states[s])}, std::move(access))[0]);
    }
    all = block == 0 ? part : merge(all, part);
  }
  return all;
}

Values RowTeam::join(GpuReducer& reducer, const Values& states) const {
  return join(states, [&](const Values& a, const Values& b) { return reducer.merge(a, b); });
}

// --- The launch ----------------------------------------------------------------------------------

namespace {

// A row for a block, or for each cluster of blocks.
RowTeam launch_blocks(BlockExpansion& x) {
  const auto& outer = x.loops().outer;
  const BlockSchedule& blocks = x.blocks;
  INKLE_CHECK(blocks.rows().team == blocks.threads, "a team of {} in a block of {}",
              blocks.rows().team, blocks.threads);
  if (x.block.is_null()) {
    for (const loop::Dim& dim : outer) {
      x.e.b.kernel().launch.axes.push_back({AxisKind::grid, dim.variable, dim.extent});
    }
    if (outer.empty()) (void)x.e.b.axis(AxisKind::grid, x.context().constant(1));
  } else if (!outer.empty()) {
    bind_outer(x, x.block, 0, outer.size());
  }
  RowTeam::Threads at;
  at.thread = x.context().constant(0);
  if (blocks.rows().cluster > 1) {
    const Expr rank = x.e.b.axis(AxisKind::cluster, x.context().constant(blocks.rows().cluster));
    at.thread = rank * std::int64_t{blocks.rows().team};
  }
  const std::vector<ThreadNumber> numbers = thread_numbers(x, thread_extents(blocks));
  at.warp = numbers[0].value;
  at.lane = numbers[1].value;
  at.axes = numbers[0].axes;
  at.axes.insert(at.axes.end(), numbers[1].axes.begin(), numbers[1].axes.end());
  at.thread = at.thread + at.warp * std::int64_t{kWarp} + at.lane;
  return {x, std::move(at)};
}

}  // namespace

void launch_rows(BlockExpansion& x, const std::function<void(const RowTeam& team)>& stages) {
  const std::int32_t team = x.blocks.rows().team;
  if (team > kWarp) return stages(launch_blocks(x));
  const auto& outer = x.loops().outer;
  const std::int64_t teams = x.blocks.threads / team;
  const Expr rows = x.iterations(outer.size());
  const Expr block =
      x.block.is_null() ? x.e.b.axis(AxisKind::grid, sym::ceildiv(rows, teams)) : x.block;
  const std::vector<ThreadNumber> numbers = thread_numbers(x, thread_extents(x.blocks));
  RowTeam::Threads at;
  at.number = numbers[0].value;
  at.thread = team > 1 ? numbers[1].value : x.context().constant(0);
  if (team > 1) at.axes = numbers[1].axes;
  const Expr row = block * teams + at.number;
  if_less(x.e.b, row, rows, [&] {
    if (outer.size() == 1) {
      bind(x, outer[0].variable, row);
    } else if (outer.size() > 1) {
      bind_outer(x, bind_new(x, row, rows), 0, outer.size());
    }
    stages({x, at});
  });
}

}  // namespace inkle::schedule::expansion
