#include "templates/gemm_wgmma_parts.h"

#include <utility>

namespace inkle::templates::wgmma {

using kernel::Op;
using loop::Opcode;

PartialSums::PartialSums(Block& block) : Operations(block.builder()), block_(block) {
  if (block.config.parts == 1) return;
  kernel::Memory tickets;
  tickets.name = "tickets";
  tickets.space = kernel::Space::workspace;
  tickets.dtype = DType::i32;
  tickets.shape = {block.problem.batch * block.matrix_tiles * (kConsumers * kWarps)};
  tickets.alignment = 16;
  tickets_ = b_.memory(std::move(tickets));
}

// In a fragment, of eight columns at a time: what a warp writes at once lies together.
Expr PartialSums::place(const Tile& tile, Expr part, std::int32_t fragment, Expr row,
                        Expr column) const {
  constexpr std::int64_t kTogether = 8;
  const WgmmaConfig& config = block_.config;
  const Expr first = (tile.number * config.parts + part) * (config.rows * config.columns) +
                     block_.row_of(fragment) * config.columns;
  return first + sym::floordiv(column, kTogether) * (kTogether * kRows) + row * kTogether +
         sym::mod(column, kTogether);
}

void PartialSums::store(const Tile& tile, const Values& sums) {
  for (std::int32_t f = 0; f < fragments_of(block_.config); ++f) {
    map(sums[static_cast<std::size_t>(f)], {}, [&](ValueId sum, Expr row, Expr column) {
      b_.store(memory(), {place(tile, tile.part, f, row, column)}, sum);
      return Values();
    });
  }
}

ValueId PartialSums::is_last(const Tile& tile) {
  const WgmmaConfig& config = block_.config;
  const Expr of_group = config.ping_pong ? number(0) : (block_.group - 1) * kWarps;
  const Expr ticket = tile.number * (kConsumers * kWarps) + of_group + block_.warp;
  const kernel::TypeList drawn_type = {kernel::scalar_type(DType::i32)};
  barrier_of_warp();
  const auto draw = [&] {
    kernel::Atomic add;
    add.op = kernel::AtomicOp::add;
    add.needs_old = true;
    add.access.memory = tickets_;
    add.access.indices = {ticket};
    add.access.order = kernel::Order::acquire_release;
    add.access.scope = kernel::Scope::gpu;
    return b_.operation(Op::atomic, {b_.integer(DType::i32, 1)}, drawn_type, add);
  };
  const ValueId drawn =
      b_.branch(block_.is_first_lane(), draw, [&] { return Values{b_.integer(DType::i32, 0)}; })[0];
  kernel::Shuffle from_first;
  from_first.kind = kernel::ShuffleKind::from;
  const ValueId of_warp =
      b_.operation(Op::shuffle, {drawn, b_.integer(DType::i32, 0)}, drawn_type, from_first)[0];
  const ValueId is_last = b_.compute(Opcode::equal, DType::boolean,
                                     {of_warp, b_.integer(DType::i32, config.parts - 1)});
  barrier_of_warp();
  // For the next call.
  when(b_.compute(Opcode::bit_and, DType::boolean, {is_last, block_.is_first_lane()}), [&] {
    kernel::Access zero;
    zero.memory = tickets_;
    zero.indices = {ticket};
    b_.store(zero, b_.integer(DType::i32, 0));
  });
  return is_last;
}

Values PartialSums::add(const Tile& tile) {
  const WgmmaConfig& config = block_.config;
  const kernel::Type type = sums_type(config.columns);
  const auto add_part = [&](Expr part, const Values& before) {
    Values totals;
    for (std::size_t f = 0; f < before.size(); ++f) {
      const auto add_element = [&](ValueId sum, Expr row, Expr column) {
        const Expr at = place(tile, part, static_cast<std::int32_t>(f), row, column);
        return Values{b_.compute(Opcode::add, DType::f32, {sum, b_.load(memory(), {at})})};
      };
      totals.push_back(map(before[f], {type}, add_element)[0]);
    }
    return totals;
  };
  return loop(number(config.parts), kernel::LoopKind::serial,
              zeros(fragments_of(config), config.columns), add_part);
}

}  // namespace inkle::templates::wgmma
