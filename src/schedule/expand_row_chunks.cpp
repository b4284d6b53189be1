// Scans of rows that blocks share, each a chunk: what comes before a chunk is added up from the
// totals that other blocks have left in the workspace, in an order that depends on the chunk's
// number alone.
//
// Chunks of a group leave their totals, the last of them that of the group: all that comes before a
// chunk is what earlier groups and the chunks before it in its own have left. Blocks wait for such
// that have begun before them, and those of one group for no other.
#include "base/error.h"
#include "schedule/expand_rows.h"

namespace inkle::schedule::expansion {

using kernel::AxisKind;
using kernel::LoopKind;
using kernel::Op;
using kernel::Order;
using kernel::Scope;
using loop::Opcode;

namespace {

constexpr std::int32_t kWarp = 32;
constexpr std::int64_t kGroup = 64;

}  // namespace

// --- The launch ----------------------------------------------------------------------------------

ValueId RowExpander::take_ticket(std::int64_t ticket, Order order) {
  kernel::Atomic add;
  add.access.memory = chunks_.tickets;
  add.access.indices = {constant(ticket)};
  add.access.order = order;
  add.access.scope = Scope::gpu;
  add.needs_old = true;
  return b_.operation(Op::atomic, {b_.integer(DType::i32, 1)}, {kernel::scalar_type(DType::i32)},
                      std::move(add))[0];
}

// Chunks of rows in the order in which blocks begin, so that what comes before one is under way.
void RowExpander::launch_chunks(const std::function<void()>& stages) {
  const auto& outer = x_.loops().outer;
  INKLE_CHECK(x_.e.scheduled.instances == 1, "a table of scans in chunks");
  INKLE_CHECK(blocks_.threads == blocks_.team && blocks_.team > kWarp && blocks_.cluster == 1,
              "chunks of {} threads by teams of {}", blocks_.threads, blocks_.team);
  const Expr rows = x_.iterations(outer.size());
  chunks_.of_row = chunks_of(x_.loops(), blocks_, x_.context());
  chunks_.cells_of_row = chunks_.of_row + sym::ceildiv(chunks_.of_row, kGroup);
  const auto workspace = [&](const char* name, DType dtype, Expr elements) {
    kernel::Memory memory;
    memory.name = name;
    memory.space = kernel::Space::workspace;
    memory.dtype = dtype;
    memory.shape = {elements};
    memory.alignment = 8;
    return b_.memory(std::move(memory));
  };
  const Expr cells = rows * chunks_.cells_of_row;
  chunks_.tickets = workspace("tickets", DType::i32, constant(2));
  chunks_.flags = workspace("flags", DType::i32, cells);
  chunks_.totals = workspace("totals", x_.prepared.stages.front().stage.accumulator, cells);
  const Expr all = rows * chunks_.of_row;
  (void)b_.axis(AxisKind::grid, all);
  warp_ = b_.axis(AxisKind::thread, constant(blocks_.threads / kWarp));
  lane_ = b_.axis(AxisKind::thread, constant(kWarp));
  const auto last = static_cast<kernel::AxisId>(b_.kernel().launch.axes.size() - 1);
  team_ = {last - 1, last};
  thread_ = warp_ * std::int64_t{kWarp} + lane_;
  const kernel::MemoryId number = shared("number", DType::i32, 1);
  b_.branch(is_first_thread(), [&] {
    b_.store(number, {constant(0)}, take_ticket(0, Order::relaxed));
    return Values();
  });
  b_.barrier({});
  const Expr own = x_.context().index(all);
  b_.operation(Op::bind, {b_.cast(b_.load(number, {constant(0)}), DType::i64)},
               {kernel::scalar_type(DType::i64)}, kernel::Symbolic{own, {}});
  chunks_.number = bind_new(x_, sym::mod(own, chunks_.of_row), chunks_.of_row);
  chunks_.row = bind_new(x_, sym::floordiv(own, chunks_.of_row), rows);
  if (!outer.empty()) bind_outer(x_, chunks_.row, 0, outer.size());
  stages();
}

// --- What blocks leave for each other ------------------------------------------------------------

void RowExpander::leave(Expr cell, ValueId value) {
  b_.store(chunks_.totals, {cell}, value);
  kernel::Access flag;
  flag.memory = chunks_.flags;
  flag.indices = {cell};
  flag.order = Order::release;
  flag.scope = Scope::gpu;
  b_.store(std::move(flag), b_.integer(DType::i32, 1));
}

ValueId RowExpander::wait_for(Expr cell) {
  const ValueId none = b_.integer(DType::i32, 0);
  b_.repeat({}, [&](const Values&) {
    kernel::Access flag;
    flag.memory = chunks_.flags;
    flag.indices = {cell};
    flag.order = Order::acquire;
    flag.scope = Scope::gpu;
    return Values{logic(Opcode::equal, {b_.load(std::move(flag)), none})};
  });
  return b_.load(chunks_.totals, {cell});
}

ValueId RowExpander::chunks_before(GpuReducer& reducer, ValueId total, ValueId none) {
  if (chunks_.of_row.is_constant(1)) return none;
  const auto join_two = [&](ValueId a, ValueId b) { return reducer.merge({a}, {b})[0]; };
  const Expr first = chunks_.row * chunks_.cells_of_row;
  const Expr groups = first + chunks_.of_row;
  const Expr group =
      bind_new(x_, sym::floordiv(chunks_.number, kGroup), sym::ceildiv(chunks_.of_row, kGroup));
  const Expr place = bind_new(x_, sym::mod(chunks_.number, kGroup), constant(kGroup));
  const ValueId is_followed = less(x_, chunks_.number + 1, chunks_.of_row);
  const ValueId leaves = logic(Opcode::bit_and, {is_first_thread(), is_followed});
  const ValueId is_end = logic(Opcode::equal, {b_.index(place), b_.index(constant(kGroup - 1))});
  b_.branch(logic(Opcode::bit_and, {leaves, logic(Opcode::bit_not, {is_end})}), [&] {
    leave(first + chunks_.number, total);
    return Values();
  });
  const Values in_group = where(less(x_, thread_, place), {none},
                                [&] { return Values{wait_for(first + group * kGroup + thread_)}; });
  const ValueId before = join(reducer, in_group)[0];
  b_.branch(logic(Opcode::bit_and, {leaves, is_end}), [&] {
    leave(groups + group, join_two(before, total));
    return Values();
  });
  const ValueId begins = logic(Opcode::equal, {b_.index(group), b_.index(constant(0))});
  return b_.branch(
      begins, [&] { return Values{before}; },
      [&] {
        kernel::Loop info;
        info.begin = thread_;
        info.end = group;
        info.step = constant(blocks_.threads);
        const Values earlier = b_.loop(std::move(info), {none}, [&](Expr g, const Values& x) {
          return Values{join_two(x[0], wait_for(groups + g))};
        });
        return Values{join_two(join(reducer, earlier)[0], before)};
      })[0];
}

// By the last block, when no other waits for what is in a cell.
void RowExpander::clear_cells() {
  const Expr rows = x_.iterations(x_.loops().outer.size());
  const kernel::MemoryId ended = shared("ended", DType::i32, 1);
  const auto clear = [&](kernel::MemoryId memory, Expr at) {
    kernel::Access access;
    access.memory = memory;
    access.indices = {at};
    access.order = Order::relaxed;
    access.scope = Scope::gpu;
    b_.store(std::move(access), b_.integer(DType::i32, 0));
  };
  b_.barrier({});
  b_.branch(is_first_thread(), [&] {
    b_.store(ended, {constant(0)}, take_ticket(1, Order::acquire_release));
    return Values();
  });
  b_.barrier({});
  const ValueId before = b_.cast(b_.load(ended, {constant(0)}), DType::i64);
  const ValueId last = b_.index(rows * chunks_.of_row - 1);
  b_.branch(logic(Opcode::equal, {before, last}), [&] {
    const DType dtype = b_.kernel().memories[chunks_.totals].dtype;
    const ValueId zero = abi::is_float(dtype) ? b_.real(dtype, 0) : b_.integer(dtype, 0);
    kernel::Loop info;
    info.begin = thread_;
    info.end = rows * chunks_.cells_of_row;
    info.step = constant(blocks_.threads);
    info.kind = LoopKind::rolled;
    b_.loop(std::move(info), {}, [&](Expr at, const Values&) {
      clear(chunks_.flags, at);
      b_.store(chunks_.totals, {at}, zero);
      return Values();
    });
    b_.branch(is_first_thread(), [&] {
      clear(chunks_.tickets, constant(0));
      clear(chunks_.tickets, constant(1));
      return Values();
    });
    return Values();
  });
}

// --- A chunk -------------------------------------------------------------------------------------

// A warp has `chunk` accesses of its threads, one behind the other.
RowPlace RowExpander::chunk_place(const Stage& stage, Expr number) const {
  const std::int64_t access = std::int64_t{kWarp} * blocks_.lanes;
  const std::int64_t warp = access * blocks_.chunk;
  RowPlace place;
  place.usage.lasts = blocks_.lasting;
  place.part = place.chooses = is_ragged(stage);
  place.number = number;
  place.base = chunks_.number * (warp * (blocks_.threads / kWarp)) + warp_ * warp +
               number * access + lane_ * std::int64_t{blocks_.lanes};
  return place;
}

void RowExpander::scan_chunk(const Stage& stage, std::size_t pass) {
  INKLE_CHECK(!is_skewed(stage), "kernel {}: chunks of rows at odd places", x_.e.scheduled.name);
  GpuReducer reducer(b_, stage.reduce, stage.accumulator, DType::i32);
  Elements own = elements(stage.accumulator, blocks_.chunk);
  const ValueId none = reducer.identity()[0];
  const auto each = [&](const Values& carried,
                        const std::function<Values(Expr, const Values&)>& f) {
    return b_.loop(LoopKind::unroll, constant(blocks_.chunk), carried,
                   [&](Expr number, const Values& before) {
                     own.number = number;
                     return f(number, before);
                   });
  };
  each({}, [&](Expr number, const Values&) {
    put_or_none(stage, pass, chunk_place(stage, number), own, none);
    return Values();
  });
  // Each element becomes the running value of its warp.
  const ValueId carry = each({none}, [&](Expr, const Values& before) {
    const ValueId last = scan_elements(reducer, own);
    const Scanned scanned = scan_warp(reducer, last, before[0], lane_, kWarp);
    in_order(0, {}, [&](Expr lane, const Values&) {
      const ValueId x = reducer.merge({scanned.before}, {load(own, lane)})[0];
      b_.store(own.memory, {own.number, lane}, x);
      return Values();
    });
    return Values{scanned.carry};
  })[0];
  const Scanned warps = warps_before(reducer, carry, none);
  const ValueId chunks = chunks_before(reducer, warps.carry, none);
  const ValueId before = reducer.merge({chunks}, {warps.before})[0];
  clear_cells();
  each({}, [&](Expr number, const Values&) {
    store_running(stage, pass, chunk_place(stage, number), own, reducer, before);
    return Values();
  });
}

// What the warps before this one make, and what all do.
RowExpander::Scanned RowExpander::warps_before(GpuReducer& reducer, ValueId own, ValueId none) {
  const std::int64_t warps = blocks_.threads / kWarp;
  const kernel::MemoryId slots = shared("s", b_.type_of(own).dtype, warps);
  b_.branch(logic(Opcode::equal, {b_.index(lane_), b_.index(constant(0))}), [&] {
    b_.store(slots, {warp_}, own);
    return Values();
  });
  b_.barrier({});
  const auto add = [&](Expr warp, const Values& x) {
    const ValueId is_own = logic(Opcode::equal, {b_.index(warp), b_.index(warp_)});
    const ValueId all = reducer.merge({x[1]}, {b_.load(slots, {warp})})[0];
    return Values{select(is_own, x[1], x[0]), all};
  };
  const Values both = b_.loop(LoopKind::unroll, constant(warps), {none, none}, add);
  return {both[0], both[1]};
}

}  // namespace inkle::schedule::expansion
