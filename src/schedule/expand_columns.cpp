// Threads along the last outer loop, each with `lanes` neighbouring columns; `team` threads share a
// column.
#include <algorithm>

#include "base/error.h"
#include "kernel/collective.h"
#include "schedule/expand_blocks.h"
#include "schedule/expand_states.h"

namespace inkle::schedule::expansion {
namespace {

using kernel::AxisKind;
using loop::Opcode;
using loop::ReduceOp;

class ColumnExpander {
 public:
  explicit ColumnExpander(BlockExpansion& x)
      : x_(x), b_(x.e.b), blocks_(x.blocks), last_(x.loops().outer.size() - 1) {
    dim_ = x.loops().outer[last_];
    shape_.lanes = blocks_.lanes;
    x.e.columns = blocks_.lanes > 1;
  }

  void run() {
    if (blocks_.columns().team == 1)
      alone();
    else
      teams();
  }

 private:
  // A thread a group of columns.
  void alone() {
    const Expr groups = sym::ceildiv(dim_.extent, blocks_.lanes);
    const Expr all = x_.iterations(last_) * groups;
    const Expr block =
        x_.block.is_null() ? b_.axis(AxisKind::grid, sym::ceildiv(all, blocks_.threads)) : x_.block;
    const Expr thread = thread_numbers(x_, thread_extents(blocks_))[0].value;
    const Expr number = block * std::int64_t{blocks_.threads} + thread;
    if_less(b_, number, all, [&] {
      if (last_ == 0) {
        in_lanes(number * std::int64_t{blocks_.lanes});
        return;
      }
      const Expr n = bind_new(x_, number, all);
      const Expr outer = bind_new(x_, sym::floordiv(n, groups), x_.iterations(last_));
      bind_outer(x_, outer, 0, last_);
      in_lanes((n - outer * groups) * std::int64_t{blocks_.lanes});
    });
  }

  // Threads y of a team have the elements y, y + team, ... of the columns.
  void teams() {
    const std::int32_t across = blocks_.threads / blocks_.columns().team;
    const std::int64_t width = std::int64_t{across} * blocks_.lanes;
    const Expr strips = sym::ceildiv(dim_.extent, width);
    const Expr strip = strip_of_block(strips);
    const std::vector<ThreadNumber> numbers = thread_numbers(x_, thread_extents(blocks_));
    y_ = numbers[0].value;
    team_ = numbers[0].axes;
    const Expr thread = numbers[1].value;
    const Expr first = (strip * std::int64_t{across} + thread) * std::int64_t{blocks_.lanes};
    if (sym::less(first, dim_.extent) != true) on_ = less(b_, first, dim_.extent);
    in_lanes(first);
  }

  Expr strip_of_block(Expr strips) {
    const auto& outer = x_.loops().outer;
    if (x_.block.is_null()) {
      for (std::size_t d = 0; d < last_; ++d) {
        b_.kernel().launch.axes.push_back({AxisKind::grid, outer[d].variable, outer[d].extent});
      }
      return b_.axis(AxisKind::grid, strips);
    }
    if (last_ == 0) return x_.block;
    bind_outer(x_, bind_new(x_, sym::floordiv(x_.block, strips), x_.iterations(last_)), 0, last_);
    return bind_new(x_, sym::mod(x_.block, strips), strips);
  }

  // Columns from `first` on.
  void in_lanes(Expr first) {
    if (shape_.lanes == 1) {
      bind(x_, dim_.variable, first);
      stages();
      return;
    }
    shape_.variable = dim_.variable;
    shape_.base = bind_new(x_, first, dim_.extent, shape_.lanes);
    const bool divides = sym::divides(shape_.lanes, dim_.extent);
    if (!divides) mask_.whole = less(b_, shape_.base + (shape_.lanes - 1), dim_.extent);
    b_.vector(shape_.lanes, shape_.lanes, [&](Expr lane) {
      shape_.lane = lane;
      if (!divides) mask_.active = less(b_, lane, dim_.extent - shape_.base);
      stages();
      return Values();
    });
  }

  void stages() {
    for (const PreparedStage& prepared : x_.prepared.stages) {
      const Stage& stage = prepared.stage;
      if (stage.kind == StageKind::reduction)
        reduction(prepared);
      else if (stage.kind == StageKind::scan)
        scan(stage);
      else if (stage.inner.empty())
        once(stage);
      else
        along(stage, {}, [&](BodyExpander& body, const Values&) {
          stores(stage, body);
          return Values();
        });
    }
  }

  BodyExpander body_of(const Stage& stage, Usage usage) {
    BodyExpander body(x_.e, stage.body, shape_);
    body.use(std::move(usage));
    body.mask(mask_);
    return body;
  }

  static void stores(const Stage& stage, BodyExpander& body) {
    std::vector<std::uint32_t> wanted;
    for (const StageStore& store : stage.stores) wanted.push_back(store.yield);
    body.evaluate(wanted, stage.stores);
    for (const StageStore& store : stage.stores) body.store(store, 0);
  }

  void once(const Stage& stage) {
    const auto write = [&] {
      Usage usage;
      usage.streams = usage.leaves = blocks_.recent;
      BodyExpander body = body_of(stage, usage);
      stores(stage, body);
      return Values();
    };
    if (blocks_.columns().team == 1) {
      write();
      return;
    }
    // One thread of the team.
    ValueId first = logic(b_, Opcode::equal, {b_.index(y_), b_.index(x_.context().constant(0))});
    if (on_ != kernel::kNone) {
      first = logic(b_, Opcode::bit_and, {on_, first});
    }
    b_.branch(first, write);
  }

  using AtPoint = std::function<Values(BodyExpander& body, const Values& carried)>;

  // `body` where the columns exist, else the values before.
  Values on(const Values& carried, const std::function<Values()>& body) {
    if (on_ == kernel::kNone) return body();
    return b_.branch(on_, body, [&] { return carried; });
  }

  // The loop down the columns.
  Values along(const Stage& stage, const Values& carried, const AtPoint& point) {
    Usage usage;
    usage.streams = stage.kind == StageKind::reduction && !is_read_again(x_, stage);
    usage.around = stage.inner.front().variable;
    return on(carried, [&] {
      kernel::Loop info;
      info.variable = stage.inner.front().variable;
      info.begin = blocks_.columns().team == 1 ? x_.context().constant(0) : y_;
      info.end = stage.inner.front().extent;
      info.step = x_.context().constant(blocks_.columns().team);
      info.unroll = blocks_.columns().unroll;
      return b_.loop(std::move(info), carried, [&](Expr, const Values& values) {
        BodyExpander body = body_of(stage, usage);
        return point(body, values);
      });
    });
  }

  // --- Reductions

  // One of the reductions of a pass: its states among those that are carried.
  struct Part {
    const PreparedReduction* reduction;
    std::size_t first;
    GpuReducer reducer;
  };

  void reduction(const PreparedStage& prepared) {
    const Stage& stage = prepared.stage;
    const bool is_wide = !stage.inner.empty() && !fits_position(stage.inner.front().extent);
    std::vector<Part> parts;
    Values states;
    for (const PreparedReduction& reduction : prepared.reductions) {
      GpuReducer reducer(b_, reduction.reduce, reduction.accumulator,
                         is_wide ? DType::i64 : DType::i32);
      parts.push_back({&reduction, states.size(), reducer});
      const Values start = reducer.identity();
      states.insert(states.end(), start.begin(), start.end());
    }
    const AtPoint point = [&](BodyExpander& body, const Values& carried) {
      std::vector<std::uint32_t> wanted;
      for (const Part& part : parts) wanted.push_back(part.reduction->yield);
      for (const StageStore& store : stage.stores) wanted.push_back(store.yield);
      body.evaluate(wanted, stage.stores);
      Values after = carried;
      for (Part& part : parts) add(part, stage, body, after);
      for (const StageStore& store : stage.stores) body.store(store, 0);
      return after;
    };
    if (stage.inner.empty()) {
      states = on(states, [&] {
        BodyExpander body = body_of(stage, {});
        return point(body, states);
      });
    } else {
      states = along(stage, states, point);
    }
    for (Part& part : parts) finish(part, states, stage.inner.empty());
  }

  static bool fits_position(Expr extent) { return sym::bounds(extent).high <= 0x7fffffff; }

  void add(Part& part, const Stage& stage, BodyExpander& body, Values& states) {
    const PreparedReduction& reduction = *part.reduction;
    const ValueId x =
        b_.cast(body.value(stage.body.yields[reduction.yield], 0), part.reducer.element());
    ValueId position = kernel::kNone;
    if (part.reducer.has_position()) {
      const DType type = part.reducer.position();
      position =
          stage.inner.empty() ? b_.integer(type, 0) : b_.index(stage.inner.front().variable, type);
    }
    const auto first = states.begin() + static_cast<std::ptrdiff_t>(part.first);
    const auto end = first + static_cast<std::ptrdiff_t>(part.reducer.states());
    const Values next = part.reducer.step(Values(first, end), x, position);
    std::copy(next.begin(), next.end(), first);
  }

  // Teams are reduced through shared memory; then the row values are defined.
  void finish(Part& part, const Values& states, bool single) {
    const auto first = states.begin() + static_cast<std::ptrdiff_t>(part.first);
    Values own(first, first + static_cast<std::ptrdiff_t>(part.reducer.states()));
    if (blocks_.columns().team > 1 && !single) own = join(part.reducer, own);
    const Values results = part.reducer.results(own);
    for (std::size_t r = 0; r < results.size(); ++r) {
      const std::uint32_t row = part.reduction->rows[r];
      x_.e.rows[row] = {{b_.cast(results[r], x_.e.loops.rows.at(row))}, shape_.lanes > 1};
    }
  }

  // Shared memory for one state of a reduction; those that follow use it again.
  kernel::MemoryId slots(const kernel::Collective& team, ValueId state, std::int64_t places) {
    const DType dtype = b_.type_of(state).dtype;
    for (const kernel::MemoryId m : x_.e.slots) {
      kernel::Memory& known = b_.kernel().memories[m];
      if (std::find(team.scratch.begin(), team.scratch.end(), m) != team.scratch.end()) continue;
      if (known.dtype != dtype) continue;
      known.shape = {sym::max(known.shape[0], x_.context().constant(places))};
      return m;
    }
    kernel::Memory memory;
    memory.name = fmt::format("slots{}", x_.e.slots.size());
    memory.space = kernel::Space::shared;
    memory.dtype = dtype;
    memory.shape = {x_.context().constant(places)};
    memory.alignment = 16;
    x_.e.slots.push_back(b_.memory(std::move(memory)));
    return x_.e.slots.back();
  }

  Values join(GpuReducer& reducer, const Values& states) {
    constexpr std::int32_t kSequential = 8;
    kernel::Collective team;
    team.axes = team_;
    team.sequential = kSequential + 1;
    const kernel::CollectivePlan plan =
        kernel::plan_collective(b_.kernel(), kernel::Op::reduce, team);
    const std::int64_t places = kernel::scratch_places(plan, kernel::Op::reduce, blocks_.lanes);
    for (const ValueId state : states) {
      if (places != 0) team.scratch.push_back(slots(team, state, places));
    }
    return b_.reduce(team, states,
                     [&](const Values& a, const Values& b) { return reducer.merge(a, b); });
  }

  void scan(const Stage& stage) {
    GpuReducer reducer(b_, stage.reduce, stage.accumulator, DType::i32);
    along(stage, reducer.identity(), [&](BodyExpander& body, const Values& carried) {
      body.evaluate({0}, stage.stores);
      const ValueId x = b_.cast(body.value(stage.body.yields[0], 0), stage.accumulator);
      const Values after = reducer.step(carried, x, kernel::kNone);
      for (const StageStore& store : stage.stores) {
        body.store(store, after[0], shape_.lanes > 1, 0);
      }
      return after;
    });
  }

  BlockExpansion& x_;
  kernel::Builder& b_;
  const BlockSchedule& blocks_;
  std::size_t last_;
  loop::Dim dim_;
  Lanes shape_;
  LaneMask mask_;
  Expr y_;  // the thread in a team
  std::vector<kernel::AxisId> team_;
  ValueId on_ = kernel::kNone;  // whether the columns of the thread exist
};

}  // namespace

void expand_columns(BlockExpansion& x) { ColumnExpander(x).run(); }

}  // namespace inkle::schedule::expansion
