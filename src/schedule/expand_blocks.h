// What the expansions of the classes of GPU schedules share: columns, rows, tiles.
//
//   columns  grid g in ceildiv(n*m/lanes, 256), thread t in 256
//            if less(index(g*256+t), index(n*m/lanes)) {
//              i0, c in range = bind(...)              # outer variables, the first of the lanes
//              vector l in lanes { stages }
//            }
#pragma once

#include <string>

#include "schedule/expand_parts.h"
#include "schedule/prepare.h"

namespace inkle::schedule::expansion {

// A part of a kernel: all of it, or one part of its ending.
struct BlockExpansion {
  Expansion& e;
  const BlockSchedule& blocks;
  PreparedKernel prepared;
  bool reads_twice = false;  // what has been read is read again

  [[nodiscard]] sym::Context& context() const { return e.b.context(); }
  [[nodiscard]] const LoopKernel& loops() const { return e.loops; }
  // The product of the first `count` outer extents.
  [[nodiscard]] Expr iterations(std::size_t count) const;
};

// A value of its own for a symbol: `symbol in range = bind(value)`.
void bind(BlockExpansion& x, Expr symbol, Expr value);
// A new symbol for the value, which is below `extent` and a multiple of `divisor`.
[[nodiscard]] Expr bind_new(BlockExpansion& x, Expr value, Expr extent, std::int64_t divisor = 1);
// Binds the outer variables first <= d < end of iteration `number`, the last fastest.
void bind_outer(BlockExpansion& x, Expr number, std::size_t first, std::size_t end);
[[nodiscard]] ValueId less(BlockExpansion& x, Expr a, Expr b);
// Runs `body` where a < b.
void if_less(BlockExpansion& x, Expr a, Expr b, const std::function<void()>& body);
// Whether a later stage reads along its loop again what this one reads.
[[nodiscard]] bool is_read_again(const BlockExpansion& x, const Stage& stage);

// Each declares the launch's axes and writes the stages.
void expand_columns(BlockExpansion& x);
void expand_rows(BlockExpansion& x);
void expand_tiles(BlockExpansion& x);

// Whether expand() knows this kernel's class.
[[nodiscard]] bool knows(const Kernel& scheduled);

}  // namespace inkle::schedule::expansion
