// Scans of rows that blocks share, each a chunk: the prefix of a chunk is accumulated from the
// totals that other blocks publish in the workspace, in an order that depends on the chunk's
// number alone.
//
// Chunks of a group publish their totals, the last of them that of the group: the prefix of a chunk
// is the totals of the earlier groups and of the chunks before it in its own. Blocks wait for such
// that have begun before them, and those of one group for no other.
#include <utility>

#include "base/error.h"
#include "schedule/expand_rows.h"

namespace inkle::schedule::expansion {
namespace {

using kernel::AxisKind;
using kernel::LoopKind;
using kernel::MemoryId;
using kernel::Op;
using kernel::Order;
using loop::Opcode;

constexpr std::int64_t kGroup = 64;

// --- What blocks publish -------------------------------------------------------------------------

// A cell for each chunk and each group: a total and whether it is there. Of 32 bits both are one
// word, so that neither side orders other accesses; else a flag is released behind the total.
class ChunkCells {
 public:
  ChunkCells(BlockExpansion& x, DType dtype)
      : x_(x),
        b_(x.e.b),
        rows_(x.iterations(x.loops().outer.size())),
        of_row_(chunks_of(x.loops(), x.blocks, x.context())),
        cells_of_row_(of_row_ + sym::ceildiv(of_row_, kGroup)),
        dtype_(dtype) {
    tickets_ = workspace("tickets", DType::i32, constant(2));
    if (abi::size_of(dtype) == 4) {
      words_ = workspace("words", DType::i64, rows_ * cells_of_row_);
      return;
    }
    flags_ = workspace("flags", DType::i32, rows_ * cells_of_row_);
    totals_ = workspace("totals", dtype, rows_ * cells_of_row_);
  }

  [[nodiscard]] Expr rows() const { return rows_; }
  [[nodiscard]] Expr of_row() const { return of_row_; }  // chunks
  // The first cell of a row's chunks; its groups' are behind them.
  [[nodiscard]] Expr first(Expr row) const { return row * cells_of_row_; }

  // How many blocks have begun before this one, in shared memory.
  [[nodiscard]] ValueId begun(const RowTeam& team) {
    return count("number", 0, Order::relaxed, team);
  }

  void leave(Expr cell, ValueId value) {
    if (are_words()) return b_.store(ordered(words_, cell, Order::relaxed), marked(b_, value));
    b_.store(totals_, {cell}, value);
    b_.store(ordered(flags_, cell, Order::release), b_.integer(DType::i32, 1));
  }

  [[nodiscard]] ValueId wait_for(Expr cell) {
    if (are_words()) return unmarked(b_, wait_for_word(cell), dtype_);
    const ValueId none = b_.integer(DType::i32, 0);
    b_.repeat({}, [&](const Values&) {
      const ValueId flag = b_.load(ordered(flags_, cell, Order::acquire));
      return Values{logic(b_, Opcode::equal, {flag, none})};
    });
    return b_.load(totals_, {cell});
  }

  // By the last block, when no other waits for what is in a cell.
  void clear(const RowTeam& team) {
    b_.barrier({});
    const ValueId before = count("ended", 1, Order::acquire_release, team);
    const ValueId last = b_.index(rows_ * of_row_ - 1);
    where(b_, logic(b_, Opcode::equal, {before, last}), [&] {
      kernel::Loop info;
      info.begin = team.at().thread;
      info.end = rows_ * cells_of_row_;
      info.step = constant(x_.blocks.threads);
      info.kind = LoopKind::rolled;
      b_.loop(std::move(info), {}, [&](Expr at, const Values&) {
        if (are_words()) {
          clear(words_, at);
        } else {
          clear(flags_, at);
          b_.store(totals_, {at}, zero(b_, dtype_));
        }
        return Values();
      });
      where(b_, team.is_first_thread(), [&] {
        clear(tickets_, constant(0));
        clear(tickets_, constant(1));
      });
    });
  }

 private:
  [[nodiscard]] bool are_words() const { return words_ != kernel::kNone; }

  [[nodiscard]] ValueId wait_for_word(Expr cell) {
    const ValueId none = b_.integer(DType::i64, 0);
    return b_.repeat({none}, [&](const Values&) {
      const ValueId word = b_.load(ordered(words_, cell, Order::relaxed));
      return Values{logic(b_, Opcode::equal, {word, none}), word};
    })[0];
  }

  [[nodiscard]] Expr constant(std::int64_t value) const { return x_.context().constant(value); }

  MemoryId workspace(const char* name, DType dtype, Expr elements) {
    kernel::Memory memory;
    memory.name = name;
    memory.space = kernel::Space::workspace;
    memory.dtype = dtype;
    memory.shape = {elements};
    memory.alignment = 8;
    return b_.memory(std::move(memory));
  }

  static kernel::Access ordered(MemoryId memory, Expr at, Order order) {
    kernel::Access access;
    access.memory = memory;
    access.indices = {at};
    access.order = order;
    access.scope = kernel::Scope::gpu;
    return access;
  }

  void clear(MemoryId memory, Expr at) {
    const DType dtype = b_.kernel().memories[memory].dtype;
    b_.store(ordered(memory, at, Order::relaxed), b_.integer(dtype, 0));
  }

  // Increments a ticket; returns its old value to all threads.
  ValueId count(const char* name, std::int64_t ticket, Order order, const RowTeam& team) {
    const MemoryId number = shared(b_, name, DType::i32, {1});
    where(b_, team.is_first_thread(), [&] {
      kernel::Atomic add;
      add.access = ordered(tickets_, constant(ticket), order);
      add.needs_old = true;
      const ValueId one = b_.integer(DType::i32, 1);
      const kernel::Type type = kernel::scalar_type(DType::i32);
      b_.store(number, {constant(0)}, b_.operation(Op::atomic, {one}, {type}, std::move(add))[0]);
    });
    b_.barrier({});
    return b_.cast(b_.load(number, {constant(0)}), DType::i64);
  }

  BlockExpansion& x_;
  kernel::Builder& b_;
  Expr rows_, of_row_, cells_of_row_;
  DType dtype_;
  MemoryId tickets_ = kernel::kNone, words_ = kernel::kNone;
  MemoryId flags_ = kernel::kNone, totals_ = kernel::kNone;
};

// --- A chunk -------------------------------------------------------------------------------------

class ChunkScan {
 public:
  // `number`: of the chunk in its row.
  ChunkScan(BlockExpansion& x, ChunkCells& cells, const RowTeam& team, Expr row, Expr number)
      : x_(x), b_(x.e.b), cells_(cells), team_(team), row_(row), number_(number) {}

  void run(const Stage& stage) {
    const RowShape shape(x_, team_);
    INKLE_CHECK(!shape.is_skewed(stage), "kernel {}: a scan in chunks of unaligned rows",
                x_.e.scheduled.name);
    KeptRow keep(x_, shape);
    RowLoops loops(x_, team_, shape);
    RowBodies bodies(x_, shape, loops, keep, nullptr);
    RowScan scan(x_, team_, shape, bodies, stage, 0);
    const TeamScan team(x_, team_, scan.reducer());
    const Elements own(b_, stage.accumulator, x_.blocks.lanes, x_.blocks.rows().chunk);
    const ValueId none = scan.reducer().identity()[0];
    const bool is_ragged = shape.is_ragged(stage);
    unrolled(b_, x_.blocks.rows().chunk, [&](Expr number) {
      scan.put_or_none(place(number, is_ragged), own.at(number), none);
    });
    // Each element becomes the running value of its warp.
    const auto run_warp = [&](Expr number, const Values& before) {
      const Elements access = own.at(number);
      const ValueId last = scan.run_lanes(access);
      const TeamScan::Scanned scanned = team.warp(last, before[0], team_.at().lane, kWarp);
      access.in_order(0, {}, [&](Expr lane, const Values&) {
        access.store(lane, team.join(scanned.before, access.load(lane)));
        return Values();
      });
      return Values{scanned.carry};
    };
    const ValueId carry = unrolled(b_, x_.blocks.rows().chunk, {none}, run_warp)[0];
    const TeamScan::Scanned warps = team.warps(carry, none);
    const ValueId chunks = chunks_before(scan.reducer(), team, warps.carry, none);
    const ValueId before = team.join(chunks, warps.before);
    cells_.clear(team_);
    unrolled(b_, x_.blocks.rows().chunk,
             [&](Expr number) { scan.store(place(number, is_ragged), own.at(number), before); });
  }

 private:
  // A warp has `chunk` accesses of its threads, one behind the other.
  [[nodiscard]] RowPlace place(Expr number, bool is_ragged) const {
    const std::int64_t access = std::int64_t{kWarp} * x_.blocks.lanes;
    const std::int64_t warp = access * x_.blocks.rows().chunk;
    RowPlace place;
    place.usage.lasts = x_.blocks.lasting;
    place.part = place.chooses = is_ragged;
    place.number = number;
    place.base = number_ * (warp * (x_.blocks.threads / kWarp)) + team_.at().warp * warp +
                 number * access + team_.at().lane * std::int64_t{x_.blocks.lanes};
    return place;
  }

  [[nodiscard]] ValueId chunks_before(GpuReducer& reducer, const TeamScan& team, ValueId total,
                                      ValueId none) {
    const Expr of_row = cells_.of_row();
    if (of_row.is_constant(1)) return none;
    const Expr thread = team_.at().thread;
    const Expr first = cells_.first(row_);
    const Expr groups = first + of_row;
    const Expr count = sym::ceildiv(of_row, kGroup);
    const Expr group = bind_new(x_, sym::floordiv(number_, kGroup), count);
    const Expr place = bind_new(x_, sym::mod(number_, kGroup), x_.context().constant(kGroup));
    const ValueId is_followed = less(b_, number_ + 1, of_row);
    const ValueId leaves = logic(b_, Opcode::bit_and, {team_.is_first_thread(), is_followed});
    const ValueId is_end = compare(b_, Opcode::equal, place, kGroup - 1);
    const ValueId is_inside = logic(b_, Opcode::bit_not, {is_end});
    where(b_, logic(b_, Opcode::bit_and, {leaves, is_inside}),
          [&] { cells_.leave(first + number_, total); });
    const Values in_group = where(b_, less(b_, thread, place), {none}, [&] {
      return Values{cells_.wait_for(first + group * kGroup + thread)};
    });
    const ValueId before = team_.join(reducer, in_group)[0];
    where(b_, logic(b_, Opcode::bit_and, {leaves, is_end}),
          [&] { cells_.leave(groups + group, team.join(before, total)); });
    return b_.branch(
        compare(b_, Opcode::equal, group, 0), [&] { return Values{before}; },
        [&] {
          kernel::Loop info;
          info.begin = thread;
          info.end = group;
          info.step = x_.context().constant(x_.blocks.threads);
          const Values earlier = b_.loop(std::move(info), {none}, [&](Expr g, const Values& sum) {
            return Values{team.join(sum[0], cells_.wait_for(groups + g))};
          });
          return Values{team.join(team_.join(reducer, earlier)[0], before)};
        })[0];
  }

  BlockExpansion& x_;
  kernel::Builder& b_;
  ChunkCells& cells_;
  const RowTeam& team_;
  Expr row_, number_;
};

// Resident blocks of a multiprocessor, 0: any number. Where a thread keeps many elements, the
// compiler takes more registers than these and a few others, and a block fewer is resident.
std::int32_t blocks_at_once(const BlockExpansion& x) {
  const abi::Target& target = x.e.target;
  const BlockSchedule& blocks = x.blocks;
  const std::int32_t elements = blocks.lanes * blocks.rows().chunk;
  if (elements < target.blocks.bounded_chunk || target.blocks.bounded_chunk == 0) return 0;
  return target.registers / (blocks.threads * (elements + target.blocks.chunk_registers));
}

}  // namespace

// Chunks of rows in the order in which blocks begin, so that the chunks before one are running.
void expand_row_chunks(BlockExpansion& x) {
  const auto& outer = x.loops().outer;
  const BlockSchedule& blocks = x.blocks;
  INKLE_CHECK(x.e.scheduled.instances == 1, "a table of scans in chunks");
  INKLE_CHECK(blocks.threads == blocks.rows().team && blocks.rows().team > kWarp &&
                  blocks.rows().cluster == 1,
              "chunks of {} threads by teams of {}", blocks.threads, blocks.rows().team);
  INKLE_CHECK(x.prepared.stages.size() == 1, "chunks of rows of {} stages",
              x.prepared.stages.size());
  const Stage& stage = x.prepared.stages.front().stage;
  ChunkCells cells(x, stage.accumulator);
  const Expr all = cells.rows() * cells.of_row();
  x.e.b.kernel().launch.resident_blocks = blocks_at_once(x);
  (void)x.e.b.axis(AxisKind::grid, all);
  RowTeam::Threads at;
  at.warp = x.e.b.axis(AxisKind::thread, x.context().constant(blocks.threads / kWarp));
  at.lane = x.e.b.axis(AxisKind::thread, x.context().constant(kWarp));
  const auto last = static_cast<kernel::AxisId>(x.e.b.kernel().launch.axes.size() - 1);
  at.axes = {last - 1, last};
  at.thread = at.warp * std::int64_t{kWarp} + at.lane;
  const RowTeam team(x, std::move(at));
  const Expr own = x.context().index(all);
  x.e.b.operation(Op::bind, {cells.begun(team)}, {kernel::scalar_type(DType::i64)},
                  kernel::Symbolic{own, {}});
  const Expr number = bind_new(x, sym::mod(own, cells.of_row()), cells.of_row());
  const Expr row = bind_new(x, sym::floordiv(own, cells.of_row()), cells.rows());
  if (!outer.empty()) bind_outer(x, row, 0, outer.size());
  declare_row_scratch(x, team);
  ChunkScan(x, cells, team, row, number).run(stage);
}

}  // namespace inkle::schedule::expansion
