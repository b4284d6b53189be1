// What the expansions of the classes of GPU schedules share: columns, rows, tiles.
//
//   columns  grid g in ceildiv(n*m/lanes, 256), thread t in 256
//            if less(index(g*256+t), index(n*m/lanes)) {
//              i0, c in range = bind(...)              # outer variables, the first of the lanes
//              vector l in lanes { stages }
//            }
#pragma once

#include <functional>
#include <span>
#include <string>

#include "schedule/expand_parts.h"
#include "schedule/prepare.h"

namespace inkle::schedule::expansion {

// Static shared memory that every architecture gives a block, in bytes.
inline constexpr std::int64_t kStaticShared = 48 << 10;

// A part of a kernel: all of it, a part of its last-block reduction, or one of those side by side.
struct BlockExpansion {
  Expansion& e;
  const BlockSchedule& blocks;
  PreparedKernel prepared;
  bool reads_twice = false;  // rows are read from memory in more than one pass
  // For a part of a launch: the block index that it would have in a launch of its own; null: the
  // expansion declares the grid axes itself.
  Expr block = {};

  [[nodiscard]] sym::Context& context() const { return e.b.context(); }
  [[nodiscard]] const LoopKernel& loops() const { return e.loops; }
  // The product of the first `count` outer extents.
  [[nodiscard]] Expr iterations(std::size_t count) const;
};

// One component of a thread's index: its value and the launch axes it is computed from.
struct ThreadNumber {
  Expr value;
  std::vector<kernel::AxisId> axes;
};
// The thread index of a block, row-major over these extents: declares an axis for each, or, in a
// launch that has thread axes already, computes each component from those.
[[nodiscard]] std::vector<ThreadNumber> thread_numbers(BlockExpansion& x,
                                                       const std::vector<std::int64_t>& extents);

// Declares thread axes from which the thread index of every schedule can be computed: 8 warps of 32
// lanes and 16 teams of 16 threads give axes of 8, 2 and 16. All have the same number of threads.
void declare_threads(kernel::Builder& b, std::span<const BlockSchedule> schedules);

// Defines a symbol by a value: `symbol in range = bind(value)`.
void bind(BlockExpansion& x, Expr symbol, Expr value);
// A new symbol for the value, which is below `extent` and a multiple of `divisor`.
[[nodiscard]] Expr bind_new(kernel::Builder& b, Expr value, Expr extent, std::int64_t divisor = 1);
[[nodiscard]] Expr bind_new(BlockExpansion& x, Expr value, Expr extent, std::int64_t divisor = 1);
// Calls `f` with the outer variables first <= d < end of iteration `number` (row-major), the last
// one first.
void unravel_outer(BlockExpansion& x, Expr number, std::size_t first, std::size_t end,
                   const std::function<void(const loop::Dim& dim, Expr value)>& f);
// Binds the outer variables first <= d < end of iteration `number`, the last fastest.
void bind_outer(BlockExpansion& x, Expr number, std::size_t first, std::size_t end);
// Whether a later stage reads, along its loop, memory that this one reads.
[[nodiscard]] bool is_read_again(const BlockExpansion& x, const Stage& stage);

// Each declares the launch's axes and writes the stages.
void expand_columns(BlockExpansion& x);
void expand_rows(BlockExpansion& x);
void expand_tiles(BlockExpansion& x);
// The stages in the form that the axis of `e.blocks` requires.
[[nodiscard]] PreparedKernel prepare_block(Expansion& e);
// A part of the launch, with its own schedule: the parameters, thread axes and shared memory for
// reductions are those of `first`.
void expand_part(Expansion& first, const LoopKernel& loops, const BlockSchedule& blocks,
                 const std::function<void(Expansion& part)>& f);
// Whether the loops load or store what may be memory of another parameter.
[[nodiscard]] bool uses_aliases(const Kernel& scheduled, const LoopKernel& loops);
// One of the expansions, by the schedule's axis.
void expand_block(BlockExpansion& x);

// The extents in which the class counts a block's threads.
[[nodiscard]] std::vector<std::int64_t> thread_extents(const BlockSchedule& blocks);

}  // namespace inkle::schedule::expansion
