#include "schedule/expand_last_block.h"

#include <algorithm>

#include "base/error.h"

namespace inkle::schedule::expansion {
namespace {

using kernel::Access;
using kernel::AxisKind;
using kernel::MemoryId;
using kernel::Op;
using kernel::Order;
using kernel::Scope;
using loop::Opcode;

// How the blocks of a kernel run a part of its last-block reduction.
BlockSchedule part_blocks(const BlockSchedule& part, const BlockSchedule& kernel, bool by_strips) {
  BlockSchedule b = part;
  b.threads = kernel.threads;
  if (by_strips) b.lanes = kernel.lanes;
  if (auto* rows = std::get_if<BlockSchedule::Rows>(&b.mapping)) {
    rows->keep = false;
    rows->cluster = 1;
    if (rows->team > kWarp) rows->team = b.threads;
  } else if (auto* columns = std::get_if<BlockSchedule::Columns>(&b.mapping)) {
    columns->team = by_strips ? kernel.team() : std::min(columns->team, b.threads);
  }
  return b;
}

class LastBlockExpander {
 public:
  LastBlockExpander(Expansion& first, const LastBlock& last_block, Expr block)
      : first_(first),
        b_(first.b),
        last_block_(last_block),
        blocks_(*first.blocks),
        parts_(last_block_parts(last_block, *first.blocks)),
        block_(block) {}

  void run() {
    const Expr all = grid_extent(first_.loops, blocks_, context());
    const bool in_cells = has_cells() && !all.is_constant(1);
    if (first_.has_threads) {
      find_thread();
    } else {
      first_.declare_threads = [&] {
        declare_threads();
        find_thread();
        if (in_cells) begin_cells(all);
      };
    }
    BlockExpansion stages{first_, blocks_, prepare_block(first_)};
    stages.block = block_;
    expand_block(stages);
    if (block_.is_null()) {
      find_blocks();
    } else {
      find_blocks_of(all);
    }
    if (in_cells) return after(began_last(), [&] { take_cells(); });
    if (count_.is_constant(1)) {
      b_.barrier({});
      return parts();
    }
    after(ended_last(), [] {});
  }

 private:
  sym::Context& context() const { return b_.context(); }
  Expr constant(std::int64_t value) const { return context().constant(value); }

  MemoryId memory(const char* name, kernel::Space space, DType dtype, std::vector<Expr> shape) {
    const auto& known = b_.kernel().memories;
    kernel::Memory memory;
    memory.name = name;
    while (std::ranges::find(known, memory.name, &kernel::Memory::name) != known.end()) {
      memory.name = fmt::format("{}{}", name, known.size());
    }
    memory.space = space;
    memory.dtype = dtype;
    memory.shape = std::move(shape);
    memory.alignment = abi::size_of(dtype);
    return b_.memory(std::move(memory));
  }

  static Access ordered(MemoryId memory, std::vector<Expr> indices, Order order) {
    Access access;
    access.memory = memory;
    access.indices = std::move(indices);
    access.order = order;
    access.scope = Scope::gpu;
    return access;
  }

  // Thread axes from which the thread index of each part can be computed.
  void declare_threads() {
    std::vector<BlockSchedule> all = parts_;
    all.push_back(blocks_);
    expansion::declare_threads(b_, all);
    first_.has_threads = true;
  }

  void find_thread() {
    std::int64_t stride = 1;
    thread_ = constant(0);
    const auto& axes = b_.kernel().launch.axes;
    for (std::size_t a = axes.size(); a-- > 0;) {
      if (axes[a].kind != AxisKind::thread) continue;
      thread_ = thread_ + axes[a].variable * stride;
      stride *= *axes[a].extent.constant();
    }
  }

  // How many blocks there are to wait for, and the strip that they are of.
  void find_blocks() {
    count_ = constant(1);
    strips_ = constant(1);
    strip_ = constant(0);
    for (const kernel::Axis& axis : b_.kernel().launch.axes) {
      if (axis.kind != AxisKind::grid) continue;
      count_ = count_ * strips_;
      strips_ = axis.extent;
      strip_ = axis.variable;
    }
    if (last_block_.by_strips) return;
    count_ = count_ * strips_;
    strips_ = constant(1);
    strip_ = constant(0);
  }

  // The same where the launch has other blocks, too.
  void find_blocks_of(Expr all) {
    count_ = all;
    strips_ = constant(1);
    strip_ = constant(0);
    if (!last_block_.by_strips) return;
    const std::int64_t columns = std::int64_t{blocks_.threads / blocks_.team()} * blocks_.lanes;
    strips_ = sym::ceildiv(first_.loops.outer.back().extent, columns);
    count_ = sym::floordiv(all, strips_);
    strip_ = bind_new(b_, sym::mod(block_, strips_), strips_);
  }

  ValueId is_first_thread() { return equal(b_.index(thread_), b_.index(constant(0))); }
  ValueId equal(ValueId a, ValueId b) { return logic(b_, Opcode::equal, {a, b}); }

  // Increments a counter; returns its old value.
  ValueId count(Expr at, Order order) {
    kernel::Atomic add;
    add.access = ordered(counters_, {at}, order);
    add.needs_old = true;
    return b_.operation(Op::atomic, {b_.integer(DType::i32, 1)}, {kernel::scalar_type(DType::i32)},
                        std::move(add))[0];
  }

  // Whether the block is the last; one thread counts, and all get the answer.
  ValueId is_last(const std::function<ValueId()>& number) {
    const MemoryId before = memory("before", kernel::Space::shared, DType::i32, {constant(1)});
    b_.branch(is_first_thread(), [&] {
      b_.store(before, {constant(0)}, number());
      return Values();
    });
    b_.barrier({});
    return equal(b_.load(before, {constant(0)}), b_.index(count_ - 1, DType::i32));
  }

  // Whether all other blocks of the strip have finished: their stores are visible then, and their
  // reads are complete.
  ValueId ended_last() {
    counters_ = memory("counters", kernel::Space::workspace, DType::i32, {strips_});
    b_.barrier({});
    return is_last([&] { return count(strip_, Order::acquire_release); });
  }

  // The last-block reduction, in the block where `last` holds.
  void after(ValueId last, const std::function<void()>& first) {
    b_.branch(last, [&] {
      b_.branch(is_first_thread(), [&] {
        b_.store(ordered(counters_, {strip_}, Order::relaxed), b_.integer(DType::i32, 0));
        return Values();
      });
      first();
      parts();
      return Values();
    });
  }

  // --- Cells in the workspace -----------------------------------------------------------------

  // Whether each block publishes one value in each cell.
  bool has_cells() const {
    return block_.is_null() && !last_block_.cells.empty() && first_.scheduled.instances == 1 &&
           blocks_.is<BlockSchedule::Rows>() && blocks_.rows().team > kWarp &&
           blocks_.cluster() == 1;
  }

  void begin_cells(Expr all) {
    counters_ = memory("counters", kernel::Space::workspace, DType::i32, {constant(1)});
    cells_ = memory("cells", kernel::Space::workspace, DType::i64,
                    {all * std::ssize(last_block_.cells)});
    blocks_of_cells_ = all;
    number_ = b_.branch(
        is_first_thread(), [&] { return Values{count(constant(0), Order::relaxed)}; },
        [&] { return Values{b_.integer(DType::i32, 0)}; })[0];
    first_.publish = [this](const StageStore& store, ValueId value) {
      const auto cell = std::find(last_block_.cells.begin(), last_block_.cells.end(), store.target);
      if (cell == last_block_.cells.end()) return false;
      b_.store(ordered(cells_, {cell_of(cell - last_block_.cells.begin(), store.offset)},
                       Order::relaxed),
               marked(b_, value));
      return true;
    };
  }

  // The index of a block's cell.
  Expr cell_of(std::int64_t cell, Expr block) const { return blocks_of_cells_ * cell + block; }

  // Whether this block was the last to begin: all others are running.
  ValueId began_last() {
    return is_last([&] { return number_; });
  }

  // Reads the cells of all blocks, spinning until each is set.
  void take_cells() {
    kernel::Loop info;
    info.begin = thread_;
    info.end = count_;
    info.step = constant(blocks_.threads);
    b_.loop(std::move(info), {}, [&](Expr block, const Values&) {
      for (std::size_t c = 0; c < last_block_.cells.size(); ++c) take_cell(c, block);
      return Values();
    });
  }

  void take_cell(std::size_t c, Expr block) {
    const auto cell = [&] {
      return ordered(cells_, {cell_of(static_cast<std::int64_t>(c), block)}, Order::relaxed);
    };
    const ValueId none = b_.integer(DType::i64, 0);
    const ValueId word = b_.repeat({none}, [&](const Values&) {
      const ValueId now = b_.load(cell());
      return Values{equal(now, none), now};
    })[0];
    b_.store(cell(), none);
    const MemoryId to = first_.memories[last_block_.cells[c]];
    b_.store(to, {block}, unmarked(b_, word, b_.kernel().memories[to].dtype));
  }

  // --- Parts ----------------------------------------------------------------------------------

  void parts() {
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const LoopKernel& loops = last_block_.parts[i].loops;
      const Expr all = grid_extent(loops, parts_[i], context());
      if (all.is_constant(0)) continue;  // of tensors without elements
      if (i != 0) b_.barrier({});
      if (last_block_.by_strips) {
        part(loops, parts_[i], strip_);
        continue;
      }
      if (all.is_constant(1)) {
        part(loops, parts_[i], constant(0));
        continue;
      }
      b_.loop(kernel::LoopKind::serial, all, {}, [&](Expr block, const Values&) {
        part(loops, parts_[i], block);
        return Values();
      });
    }
  }

  void part(const LoopKernel& loops, const BlockSchedule& blocks, Expr block) {
    expand_part(first_, loops, blocks, [&](Expansion& e) {
      BlockExpansion x{e, blocks, prepare_block(e)};
      x.block = block;
      expand_block(x);
    });
  }

  Expansion& first_;
  kernel::Builder& b_;
  const LastBlock& last_block_;
  const BlockSchedule& blocks_;
  std::vector<BlockSchedule> parts_;
  Expr block_;
  Expr thread_;
  Expr count_, strips_, strip_;
  Expr blocks_of_cells_;
  MemoryId counters_ = kernel::kNone, cells_ = kernel::kNone;
  ValueId number_ = kernel::kNone;  // begin order of the block; in its first thread
};

}  // namespace

std::vector<BlockSchedule> last_block_parts(const LastBlock& last_block,
                                            const BlockSchedule& kernel) {
  std::vector<BlockSchedule> parts;
  for (const LastBlock::Part& part : last_block.parts) {
    parts.push_back(part_blocks(part.blocks, kernel, last_block.by_strips));
  }
  return parts;
}

void expand_last_block(Expansion& first, const LastBlock& last_block, Expr block) {
  LastBlockExpander(first, last_block, block).run();
}

}  // namespace inkle::schedule::expansion
