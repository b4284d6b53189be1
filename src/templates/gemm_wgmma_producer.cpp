#include "templates/gemm_wgmma_producer.h"

namespace inkle::templates::wgmma {

using kernel::Op;
using loop::Opcode;

namespace {

void copy(Block& block, std::size_t operand, const Tile& tile, Expr term, Expr stage_number) {
  kernel::Builder& b = block.builder();
  const GemmBoxes& boxes = block.problem.boxes[operand];
  const bool has_batch = boxes.sizes.size() == 3;
  const Expr first = operand == 0 ? tile.row : tile.column;
  const auto copy_box = [&](Expr panel) {
    kernel::Bulk bulk;
    bulk.map = block.maps[operand];
    bulk.shared.memory = block.stages[operand];
    bulk.shared.indices = {block.barriers.slot(stage_number)};
    if (!panel.is_null()) bulk.shared.indices.push_back(panel);
    bulk.shared.indices.resize(bulk.shared.indices.size() + boxes.box.size(), block.number(0));
    bulk.barrier.memory = block.barriers.full();
    bulk.barrier.indices = {block.barriers.slot(stage_number)};
    Values at;
    if (has_batch) at.push_back(b.index(tile.batch));
    if (panel.is_null()) at.push_back(b.index(first));
    at.push_back(b.index(term));
    if (!panel.is_null()) at.push_back(b.index(first + panel * kPanel));
    b.operation(Op::tma_load, at, {}, bulk);
  };
  if (boxes.terms_last) return copy_box({});
  const std::int32_t extent = operand == 0 ? block.config.rows : block.config.columns;
  block.loop(block.number(extent / kPanel), kernel::LoopKind::unroll, copy_box);
}

}  // namespace

void write_producer(Block& block) {
  const WgmmaConfig& config = block.config;
  const Expr thread = block.warp * kWarp + block.lane;
  block.when(block.is(Opcode::equal, thread, block.number(0)), [&] {
    const std::int64_t bytes = (config.rows + config.columns) * config.terms * kElement;
    block.loop(block.turns(), kernel::LoopKind::serial, [&](Expr turn) {
      const Tile tile = block.tile_of(turn);
      block.loop(block.stages_of_tile, kernel::LoopKind::serial, [&](Expr s) {
        const Expr n = tile.first_stage + s;
        block.barriers.wait_free(n);
        block.barriers.fill(n, bytes);
        for (const std::size_t o : {0, 1}) copy(block, o, tile, block.first_term(tile, s), n);
      });
    });
  });
}

}  // namespace inkle::templates::wgmma
