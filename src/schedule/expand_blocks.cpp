#include "schedule/expand_blocks.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/error.h"
#include "sym/symbols.h"

namespace inkle::schedule::expansion {

using loop::Instruction;
using loop::Opcode;

Expr BlockExpansion::iterations(std::size_t count) const {
  Expr product = context().constant(1);
  for (std::size_t d = 0; d < count; ++d) product = product * loops().outer[d].extent;
  return product;
}

std::vector<std::int64_t> thread_extents(const BlockSchedule& blocks) {
  const std::int64_t team = blocks.team(), teams = blocks.threads / team;
  if (const auto* tile = std::get_if<BlockSchedule::Tile>(&blocks.mapping)) {
    if (tile->side == 0) return {kTileDown, kTileAcross};
    return {blocks.threads};
  }
  if (team == 1) return {blocks.threads};
  if (blocks.is<BlockSchedule::Columns>()) return {team, teams};
  if (team > kWarp) return {team / kWarp, kWarp};
  return {teams, team};
}

std::vector<ThreadNumber> thread_numbers(BlockExpansion& x,
                                         const std::vector<std::int64_t>& extents) {
  kernel::Builder& b = x.e.b;
  const auto& axes = b.kernel().launch.axes;
  std::vector<ThreadNumber> out;
  if (x.e.declare_threads) std::exchange(x.e.declare_threads, {})();
  if (x.e.has_threads) {
    std::size_t a = axes.size();
    const auto next = [&] {
      do {
        INKLE_CHECK(a > 0, "kernel {}: too few thread axes", x.e.scheduled.name);
        --a;
      } while (axes[a].kind != kernel::AxisKind::thread);
    };
    for (std::size_t e = extents.size(); e-- > 0;) {
      ThreadNumber number{x.context().constant(0), {}};
      std::int64_t stride = 1;
      while (stride < extents[e]) {
        next();
        number.value = number.value + axes[a].variable * stride;
        number.axes.insert(number.axes.begin(), static_cast<kernel::AxisId>(a));
        stride *= *axes[a].extent.constant();
      }
      INKLE_CHECK(stride == extents[e], "kernel {}: no thread axes of size {}", x.e.scheduled.name,
                  extents[e]);
      out.insert(out.begin(), std::move(number));
    }
    return out;
  }
  for (const std::int64_t extent : extents) {
    const Expr variable = b.axis(kernel::AxisKind::thread, x.context().constant(extent));
    out.push_back({variable, {static_cast<kernel::AxisId>(axes.size() - 1)}});
  }
  return out;
}

void declare_threads(kernel::Builder& b, std::span<const BlockSchedule> schedules) {
  std::set<std::int64_t> strides{1};
  for (const BlockSchedule& blocks : schedules) {
    std::int64_t stride = 1;
    const std::vector<std::int64_t> extents = thread_extents(blocks);
    for (std::size_t e = extents.size(); e-- > 0;) strides.insert(stride *= extents[e]);
  }
  const auto axis = [&](std::int64_t extent) {
    (void)b.axis(kernel::AxisKind::thread, b.context().constant(extent));
  };
  for (auto above = strides.rbegin(); std::next(above) != strides.rend(); ++above) {
    const std::int64_t below = *std::next(above);
    if (*above % below != 0) {
      unsupported("kernel {}: cannot split {} threads by {}", b.kernel().name, *above, below);
    }
    axis(*above / below);
  }
  if (strides.size() == 1) axis(1);
}

namespace {

void bind(kernel::Builder& b, Expr symbol, Expr value) {
  b.operation(kernel::Op::bind, {b.index(value)}, {kernel::scalar_type(DType::i64)},
              kernel::Symbolic{symbol, {}});
}

}  // namespace

void bind(BlockExpansion& x, Expr symbol, Expr value) { bind(x.e.b, symbol, value); }

Expr bind_new(kernel::Builder& b, Expr value, Expr extent, std::int64_t divisor) {
  const Expr symbol =
      sym::fresh(b.context(), {.range = {.low = 0}, .divisor = divisor, .extent = extent});
  bind(b, symbol, value);
  return symbol;
}

Expr bind_new(BlockExpansion& x, Expr value, Expr extent, std::int64_t divisor) {
  return bind_new(x.e.b, value, extent, divisor);
}

void unravel_outer(BlockExpansion& x, Expr number, std::size_t first, std::size_t end,
                   const std::function<void(const loop::Dim& dim, Expr value)>& f) {
  const auto& outer = x.loops().outer;
  Expr rest = number;
  for (std::size_t d = end; d-- > first + 1;) {
    Expr above = x.context().constant(1);
    for (std::size_t a = first; a < d; ++a) above = above * outer[a].extent;
    f(outer[d], sym::mod(rest, outer[d].extent));
    rest = bind_new(x, sym::floordiv(rest, outer[d].extent), above);
  }
  if (end > first) f(outer[first], rest);
}

void bind_outer(BlockExpansion& x, Expr number, std::size_t first, std::size_t end) {
  unravel_outer(x, number, first, end,
                [&](const loop::Dim& dim, Expr value) { bind(x, dim.variable, value); });
}

bool is_read_again(const BlockExpansion& x, const Stage& stage) {
  const auto reads = [](const Stage& other, std::uint32_t buffer) {
    return !other.inner.empty() &&
           std::any_of(other.body.instructions.begin(), other.body.instructions.end(),
                       [&](const Instruction& i) {
                         return i.opcode == Opcode::load && i.buffer == buffer;
                       });
  };
  bool is_later = false;
  for (const PreparedStage& other : x.prepared.stages) {
    if (is_later && std::any_of(stage.body.instructions.begin(), stage.body.instructions.end(),
                                [&](const Instruction& i) {
                                  return i.opcode == Opcode::load && reads(other.stage, i.buffer);
                                })) {
      return true;
    }
    is_later = is_later || &other.stage == &stage;
  }
  return false;
}

PreparedKernel prepare_block(Expansion& e) {
  const bool is_columns = e.blocks->is<BlockSchedule::Columns>();
  const auto* rows = std::get_if<BlockSchedule::Rows>(&e.blocks->mapping);
  const PrepareOptions options{.join_softmax = rows == nullptr || !rows->keep,
                               .join_columns = is_columns,
                               .join_rows = e.loops.sequential != 0};
  return prepare(e.scheduled, e.loops, options, e.b.context());
}

void expand_part(Expansion& first, const LoopKernel& loops, const BlockSchedule& blocks,
                 const std::function<void(Expansion& part)>& f) {
  Schedule schedule;
  schedule.blocks = blocks;
  Expansion e{first.b,        first.scheduled, loops, schedule, first.target,
              first.memories, false,           {},    {}};
  e.memories.resize(first.scheduled.params.size());
  e.rows.resize(loops.rows.size());
  e.blocks = &blocks;
  e.aliasing = uses_aliases(first.scheduled, loops);
  e.has_threads = true;
  e.slots = std::move(first.slots);
  f(e);
  first.slots = std::move(e.slots);
}

bool uses_aliases(const Kernel& scheduled, const LoopKernel& loops) {
  const auto& params = scheduled.params;
  const auto is_alias = [&](std::uint32_t b) { return b < params.size() && params[b].may_alias; };
  return std::any_of(loops.stages.begin(), loops.stages.end(), [&](const Stage& stage) {
    const auto& body = stage.body.instructions;
    return std::any_of(body.begin(), body.end(),
                       [&](const Instruction& i) {
                         return i.opcode == Opcode::load && is_alias(i.buffer);
                       }) ||
           std::any_of(stage.stores.begin(), stage.stores.end(),
                       [&](const StageStore& store) { return is_alias(store.target); });
  });
}

void expand_block(BlockExpansion& x) {
  if (x.blocks.is<BlockSchedule::Columns>()) return expand_columns(x);
  if (x.blocks.is<BlockSchedule::Rows>()) return expand_rows(x);
  expand_tiles(x);
}

}  // namespace inkle::schedule::expansion
