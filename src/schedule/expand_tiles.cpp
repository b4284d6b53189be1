// Elementwise stages of which some operands lie along the last outer loop (a) and others along the
// one before it (b). What lies along b is read along b, in vector accesses, and then
// transposed: in a thread's registers, or through the block's shared memory.
#include <algorithm>

#include "base/error.h"
#include "kernel/lanes.h"
#include "schedule/expand_blocks.h"

namespace inkle::schedule::expansion {
namespace {

using kernel::AxisKind;
using kernel::MemoryId;
using loop::Instruction;
using loop::Opcode;

// Registers of a thread for what it reads ahead of the barrier.
constexpr std::int64_t kAheadRegisters = 48;
// A load ahead of its use: a thread's accesses in registers, each of `lanes` elements.
struct Ahead {
  loop::Val value;
  MemoryId memory;
};

// The stage of a tile whose first elements are `first_a` and `first_b`.
class TileStage {
 public:
  TileStage(BlockExpansion& x, Expr at_a, Expr at_b)
      : first_a(at_a),
        first_b(at_b),
        a(x.loops().outer.back()),
        row(x.loops().outer[x.loops().outer.size() - 2]),
        x_(x),
        b_(x.e.b),
        blocks_(x.blocks),
        stage_(x.prepared.stages.front().stage) {}

  const Expr first_a, first_b;
  const loop::Dim a, row;

  [[nodiscard]] const loop::Body& body() const { return stage_.body; }

  // An unconditional load whose address depends on no other value.
  [[nodiscard]] bool is_of_place(loop::Val v) const {
    const Instruction& load = stage_.body[v];
    if (load.opcode != Opcode::load || load.operand_count != 0) return false;
    const auto symbols = sym::symbols(load.indices.front());
    return std::none_of(symbols.begin(), symbols.end(), [&](Expr s) {
      return std::any_of(
          stage_.body.instructions.begin(), stage_.body.instructions.end(),
          [&](const Instruction& i) { return i.opcode == Opcode::indirect && i.indices[0] == s; });
    });
  }

  // Whether lanes along the variable read neighbours, from a multiple of their number on.
  [[nodiscard]] bool is_along(loop::Val v, Expr variable) const {
    const Instruction& load = stage_.body[v];
    const Expr lane = x_.context().index(constant(blocks_.lanes));
    const Expr group = x_.context().index(constant(1 << 20));
    const std::pair<Expr, Expr> map[] = {{variable, group * std::int64_t{blocks_.lanes} + lane}};
    kernel::Access access;
    access.memory = x_.e.memories.at(load.buffer);
    access.indices = {split_lanes(sym::substitute(load.indices.front(), map), lane, blocks_.lanes)};
    const auto stride = sym::stride(access.indices.front(), lane);
    if (!stride || !stride->is_constant(1)) return false;
    access.form = kernel::Form::wide;
    return kernel::access_width(b_.kernel(), access, lane, blocks_.lanes) > 1;
  }

  // What lies along b; what is the same for all columns has nothing to transpose.
  [[nodiscard]] std::vector<loop::Val> transposed() const {
    std::vector<loop::Val> found;
    for (loop::Val v = 0; v < stage_.body.instructions.size(); ++v) {
      if (!is_of_place(v) || !sym::contains(stage_.body[v].indices.front(), a.variable)) continue;
      if (is_along(v, row.variable)) found.push_back(v);
    }
    return found;
  }

  [[nodiscard]] Ahead registers_for(loop::Val v, std::int64_t count) const {
    return {v, registers(b_, "c", stage_.body[v].dtype, {count, blocks_.lanes})};
  }

  // Loads the values, with lanes along `variable` from `base` on, into row k of their registers.
  void load(const std::vector<Ahead>& loads, Expr variable, Expr base, Expr k, bool ahead) {
    in_vector(b_, blocks_.lanes, [&](Expr lane) {
      BodyExpander body(x_.e, stage_.body, lanes(variable, base, lane));
      Usage usage;
      usage.ahead = ahead;
      body.use(usage);
      for (const Ahead& one : loads) {
        b_.store(one.memory, {k, lane}, body.value(one.value, 0), kernel::Form::wide);
      }
    });
  }

  // The stage for lanes along a, of which `known` has what was loaded ahead.
  void store(Expr base, const std::function<void(BodyExpander& body, Expr lane)>& known) {
    in_vector(b_, blocks_.lanes, [&](Expr lane) {
      BodyExpander body(x_.e, stage_.body, lanes(a.variable, base, lane));
      known(body, lane);
      std::vector<std::uint32_t> wanted;
      for (const StageStore& one : stage_.stores) wanted.push_back(one.yield);
      body.evaluate(wanted, stage_.stores);
      for (const StageStore& one : stage_.stores) body.store(one, 0);
    });
  }

  // Inside, `variable` stands for e.
  void with(Expr variable, Expr e, const std::function<void()>& body) {
    x_.e.replaced.emplace_back(variable, e);
    body();
    x_.e.replaced.pop_back();
  }

  // Runs `body` where a and b lie in the tile's part of the matrix.
  void where(Expr at_a, Expr at_b, const std::function<void()>& body) {
    const auto inside = [&](Expr at, const loop::Dim& dim) {
      const std::int64_t step = blocks_.tile().side != 0 ? blocks_.tile().side : 1;
      return (blocks_.tile().side != 0 && sym::divides(step, dim.extent)) ||
             sym::less(at, dim.extent) == true;
    };
    const bool has_a = inside(at_a, a), has_b = inside(at_b, row);
    if (has_a && has_b) return body();
    ValueId both = has_a ? kernel::kNone : less(b_, at_a, a.extent);
    if (!has_b) {
      const ValueId other = less(b_, at_b, row.extent);
      both = both == kernel::kNone ? other : logic(b_, Opcode::bit_and, {both, other});
    }
    expansion::where(b_, both, body);
  }

 private:
  [[nodiscard]] Expr constant(std::int64_t value) const { return x_.context().constant(value); }

  [[nodiscard]] Lanes lanes(Expr variable, Expr base, Expr lane) const {
    Lanes shape;
    shape.variable = variable;
    shape.base = base;
    shape.lane = lane;
    shape.lanes = blocks_.lanes;
    return shape;
  }

  BlockExpansion& x_;
  kernel::Builder& b_;
  const BlockSchedule& blocks_;
  const Stage& stage_;
};

// Each thread has a square of `lanes` rows of `lanes` elements.
void of_thread(BlockExpansion& x, TileStage& tile) {
  kernel::Builder& builder = x.e.b;
  const std::int64_t n = x.blocks.lanes;
  const std::vector<ThreadNumber> threads = thread_numbers(x, thread_extents(x.blocks));
  const Expr at_a = tile.first_a + threads[1].value * n;
  const Expr at_b = tile.first_b + threads[0].value * n;
  tile.where(at_a, at_b, [&] {
    const Expr a = bind_new(x, at_a, tile.a.extent, n);
    const Expr b = bind_new(x, at_b, tile.row.extent, n);
    std::vector<Ahead> loads;
    for (const loop::Val v : tile.transposed()) loads.push_back(tile.registers_for(v, n));
    if (!loads.empty()) {
      unrolled(builder, n, [&](Expr i) {
        tile.with(tile.a.variable, a + i,
                  [&] { tile.load(loads, tile.row.variable, b, i, false); });
      });
    }
    unrolled(builder, n, [&](Expr q) {
      tile.with(tile.row.variable, b + q, [&] {
        tile.store(a, [&](BodyExpander& body, Expr lane) {
          for (const Ahead& one : loads) {
            body.know(one.value, builder.load(one.memory, {lane, q}));
          }
        });
      });
    });
  });
}

// A block's square, through shared memory.
class SharedTile {
 public:
  SharedTile(BlockExpansion& x, TileStage& tile)
      : x_(x), b_(x.e.b), blocks_(x.blocks), tile_(tile) {}

  void run() {
    const std::int64_t side = blocks_.tile().side;
    const std::int64_t all = side * side / blocks_.lanes;
    if (side % (8 * blocks_.lanes) != 0 || all % blocks_.threads != 0) refuse();
    const std::int64_t count = all / blocks_.threads;
    const Expr thread = thread_numbers(x_, thread_extents(blocks_))[0].value;
    const std::vector<loop::Val> values = tile_.transposed();
    check(values, count);
    std::vector<Ahead> loads;
    std::vector<Square> squares;
    for (const loop::Val v : values) {
      squares.push_back(square(v));
      loads.push_back(tile_.registers_for(v, count));
      take(loads.back(), squares.back(), thread, count);
    }
    const std::vector<Ahead> early = load_early(values, thread, count);
    for (std::size_t i = 0; i < loads.size(); ++i) put(loads[i], squares[i], thread, count);
    if (!loads.empty()) b_.barrier({});
    unrolled(b_, count, [&](Expr k) {
      const Expr n = thread + k * std::int64_t{blocks_.threads};
      at_rows(n, [&](Expr a, const At& at) {
        std::vector<std::optional<MemoryId>> parts;
        for (const Square& from : squares) parts.push_back(get_parts(from, at));
        tile_.store(a, [&](BodyExpander& body, Expr lane) {
          for (std::size_t i = 0; i < loads.size(); ++i) {
            body.know(loads[i].value, get(squares[i], parts[i], at, lane));
          }
          for (const Ahead& one : early) {
            body.know(one.value, b_.load(one.memory, {k, lane}, kernel::Form::wide));
          }
        });
      });
    });
  }

 private:
  [[nodiscard]] Expr constant(std::int64_t value) const { return x_.context().constant(value); }

  // Access n of the block, which has them row by row.
  struct At {
    Expr a, b;  // in the tile
  };
  [[nodiscard]] At along_rows(Expr n) const {
    const std::int64_t across = blocks_.tile().side / blocks_.lanes;
    return {sym::mod(n, across) * std::int64_t{blocks_.lanes}, sym::floordiv(n, across)};
  }
  // Of accesses along b, 8 threads side by side; `words` neighbours along a are of one thread.
  [[nodiscard]] At along_columns(Expr pair, Expr word, std::int64_t words) const {
    const std::int64_t pairs = blocks_.tile().side / words;
    const Expr eight = sym::floordiv(pair, 8);
    const Expr a = sym::mod(eight, pairs) * words + word;
    const Expr b = sym::mod(pair, 8) + sym::floordiv(eight, pairs) * std::int64_t{8};
    return {a, b * std::int64_t{blocks_.lanes}};
  }

  // The square in shared memory: rows in groups of `lanes`; the 16 bytes of a row change places
  // with each other from group to group, so that 8 threads side by side along b and 4 along a use
  // all banks when they store a word each, and 8 along a when they load 16 bytes each.
  struct Square {
    MemoryId memory;
    std::int64_t words;  // elements of a word
    std::int64_t chunk;  // elements of 16 bytes
  };

  Square square(loop::Val v) {
    const std::int64_t size = abi::size_of(tile_.body()[v].dtype);
    Square made{0, std::max<std::int64_t>(4 / size, 1), 16 / size};
    made.memory = shared(b_, "square", tile_.body()[v].dtype,
                         {blocks_.tile().side / blocks_.lanes, blocks_.lanes,
                          blocks_.tile().side / made.chunk, made.chunk});
    return made;
  }

  // The 16 bytes of a row that hold element a of rows of the group.
  Expr chunk_of(const Square& square, Expr a, Expr group) {
    const Expr chunks = constant(blocks_.tile().side / square.chunk);
    const ValueId place =
        b_.compute(Opcode::bit_xor, DType::i64,
                   {b_.index(sym::floordiv(a, square.chunk)), b_.index(sym::mod(group, 8))});
    const Expr symbol = x_.context().index(chunks);
    b_.operation(kernel::Op::bind, {place}, {kernel::scalar_type(DType::i64)},
                 kernel::Symbolic{symbol, {}});
    return symbol;
  }

  [[noreturn]] void refuse() const {
    unsupported("kernel {}: tiles of {} by {} in blocks of {}", x_.e.scheduled.name,
                blocks_.tile().side, blocks_.tile().side, blocks_.threads);
  }

  void check(const std::vector<loop::Val>& loads, std::int64_t count) const {
    const std::int64_t side = blocks_.tile().side;
    std::int64_t shared = 0;
    for (const loop::Val v : loads) {
      const std::int64_t size = abi::size_of(tile_.body()[v].dtype);
      if (side * size % 128 != 0 || count % std::max<std::int64_t>(4 / size, 1) != 0) refuse();
      shared += side * side * size;
    }
    if (shared > kStaticShared) refuse();
  }

  // `body` at access n of the rows, where that is inside.
  void at_rows(Expr n, const std::function<void(Expr a, const At& at)>& body) {
    const At at = along_rows(n);
    tile_.where(tile_.first_a + at.a, tile_.first_b + at.b, [&] {
      const Expr a = bind_new(x_, tile_.first_a + at.a, tile_.a.extent, blocks_.lanes);
      const Expr b = bind_new(x_, tile_.first_b + at.b, tile_.row.extent);
      tile_.with(tile_.row.variable, b, [&] { body(a, at); });
    });
  }

  // A thread's accesses along b, in flight.
  void take(const Ahead& load_of, const Square& square, Expr thread, std::int64_t count) {
    unrolled(b_, count, [&](Expr k) {
      const Expr pair = thread + sym::floordiv(k, square.words) * std::int64_t{blocks_.threads};
      const At at = along_columns(pair, sym::mod(k, square.words), square.words);
      tile_.where(tile_.first_a + at.a, tile_.first_b + at.b, [&] {
        const Expr a = bind_new(x_, tile_.first_a + at.a, tile_.a.extent);
        const Expr b = bind_new(x_, tile_.first_b + at.b, tile_.row.extent, blocks_.lanes);
        tile_.with(tile_.a.variable, a,
                   [&] { tile_.load({load_of}, tile_.row.variable, b, k, true); });
      });
    });
  }

  // What lies along the rows, as far as there are registers: in flight before the barrier, too.
  std::vector<Ahead> load_early(const std::vector<loop::Val>& transposed, Expr thread,
                                std::int64_t count) {
    const auto size = [&](loop::Val v) {
      return count * blocks_.lanes * abi::size_of(tile_.body()[v].dtype) / 4;
    };
    std::int64_t ahead = 0;
    for (const loop::Val v : transposed) ahead += size(v);
    std::vector<Ahead> early;
    for (loop::Val v = 0; v < tile_.body().instructions.size(); ++v) {
      const bool is_transposed =
          std::find(transposed.begin(), transposed.end(), v) != transposed.end();
      if (is_transposed || !tile_.is_of_place(v) || ahead + size(v) > kAheadRegisters) continue;
      if (!tile_.is_along(v, tile_.a.variable)) continue;
      ahead += size(v);
      early.push_back(tile_.registers_for(v, count));
    }
    if (early.empty()) return early;
    unrolled(b_, count, [&](Expr k) {
      at_rows(thread + k * std::int64_t{blocks_.threads},
              [&](Expr a, const At&) { tile_.load(early, tile_.a.variable, a, k, true); });
    });
    return early;
  }

  // Each row's neighbours along a as one word.
  void put(const Ahead& from, const Square& to, Expr thread, std::int64_t count) {
    unrolled(b_, count / to.words, [&](Expr step) {
      const Expr pair = thread + step * std::int64_t{blocks_.threads};
      const At at = along_columns(pair, constant(0), to.words);
      tile_.where(tile_.first_a + at.a, tile_.first_b + at.b, [&] {
        const Expr group = sym::floordiv(at.b, blocks_.lanes);
        const Expr chunk = chunk_of(to, at.a, group);
        const Expr within = sym::mod(at.a, to.chunk);
        unrolled(b_, blocks_.lanes, [&](Expr l) {
          const auto word = static_cast<std::int32_t>(to.words);
          b_.vector(word, word, [&](Expr r) {
            const ValueId x = b_.load(from.memory, {step * to.words + r, l});
            b_.store(to.memory, {group, l, chunk, within + r}, x,
                     word > 1 ? kernel::Form::wide : kernel::Form::each);
            return Values();
          });
        });
      });
    });
  }

  // Lanes along a of a row: `parts` has them in accesses of 16 bytes, where there are several.
  ValueId get(const Square& from, const std::optional<MemoryId>& parts, const At& at, Expr lane) {
    if (parts) {
      return b_.load(*parts, {sym::floordiv(lane, from.chunk), sym::mod(lane, from.chunk)});
    }
    const Expr group = sym::floordiv(at.b, blocks_.lanes);
    const Expr chunk = chunk_of(from, at.a, group);
    return b_.load(from.memory,
                   {group, sym::mod(at.b, blocks_.lanes), chunk, sym::mod(at.a, from.chunk) + lane},
                   kernel::Form::wide);
  }

  std::optional<MemoryId> get_parts(const Square& from, const At& at) {
    if (blocks_.lanes <= from.chunk) return std::nullopt;
    const MemoryId parts = registers(b_, "c", b_.kernel().memories[from.memory].dtype,
                                     {blocks_.lanes / from.chunk, from.chunk});
    const Expr group = sym::floordiv(at.b, blocks_.lanes);
    const Expr row = sym::mod(at.b, blocks_.lanes);
    const auto width = static_cast<std::int32_t>(from.chunk);
    for (std::int64_t part = 0; part < blocks_.lanes / from.chunk; ++part) {
      const Expr chunk = chunk_of(from, at.a + part * from.chunk, group);
      b_.vector(width, width, [&](Expr r) {
        const ValueId x = b_.load(from.memory, {group, row, chunk, r}, kernel::Form::wide);
        b_.store(parts, {constant(part), r}, x, kernel::Form::wide);
        return Values();
      });
    }
    return parts;
  }

  BlockExpansion& x_;
  kernel::Builder& b_;
  const BlockSchedule& blocks_;
  TileStage& tile_;
};

}  // namespace

namespace {

// The indices of the block's tile, down and across; binds the outer variables around.
std::pair<Expr, Expr> tile_of_block(BlockExpansion& x, Expr down, Expr across) {
  const auto& outer = x.loops().outer;
  const std::size_t around = outer.size() - 2;
  if (x.block.is_null()) {
    for (std::size_t d = 0; d < around; ++d) {
      x.e.b.kernel().launch.axes.push_back({AxisKind::grid, outer[d].variable, outer[d].extent});
    }
    const Expr b = x.e.b.axis(AxisKind::grid, down);
    return {b, x.e.b.axis(AxisKind::grid, across)};
  }
  const Expr a = bind_new(x, sym::mod(x.block, across), across);
  const Expr rows = bind_new(x, sym::floordiv(x.block, across), x.iterations(around) * down);
  if (around == 0) return {rows, a};
  bind_outer(x, bind_new(x, sym::floordiv(rows, down), x.iterations(around)), 0, around);
  return {bind_new(x, sym::mod(rows, down), down), a};
}

}  // namespace

void expand_tiles(BlockExpansion& x) {
  const auto& outer = x.loops().outer;
  const std::size_t last = outer.size() - 1;
  const bool is_shared = x.blocks.tile().side != 0;
  const std::int64_t across = is_shared ? x.blocks.tile().side : kTileAcross * x.blocks.lanes;
  const std::int64_t down = is_shared ? x.blocks.tile().side : kTileDown * x.blocks.lanes;
  const auto [row, column] = tile_of_block(x, sym::ceildiv(outer[last - 1].extent, down),
                                           sym::ceildiv(outer[last].extent, across));
  TileStage tile(x, column * across, row * down);
  if (is_shared)
    SharedTile(x, tile).run();
  else
    of_thread(x, tile);
}

}  // namespace inkle::schedule::expansion
