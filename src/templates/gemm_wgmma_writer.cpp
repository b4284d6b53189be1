#include "templates/gemm_wgmma_writer.h"

#include "templates/gemm_wgmma_epilogue.h"
#include "templates/gemm_wgmma_multiply.h"
#include "templates/gemm_wgmma_parts.h"
#include "templates/gemm_wgmma_producer.h"

namespace inkle::templates::wgmma {

using kernel::Op;

namespace {

void write_consumers(Block& block, Multiplier& multiplier, PartialSums& parts, Epilogue& epilogue) {
  const auto one = [&](Expr turn) {
    const Tile tile = block.tile_of(turn);
    if (block.config.parts == 1) {
      epilogue.load_first(tile);
      epilogue.finish(tile, multiplier.multiply(tile));
      return;
    }
    parts.store(tile, multiplier.multiply(tile));
    block.when(parts.is_last(tile), [&] { epilogue.finish(tile, parts.add(tile)); });
  };
  if (!block.config.ping_pong) return block.loop(block.turns(), kernel::LoopKind::serial, one);
  const Expr first = block.group - 1;
  block.loop(sym::ceildiv(block.turns() - first, kConsumers), kernel::LoopKind::serial,
             [&](Expr i) { one(i * kConsumers + first); });
}

}  // namespace

kernel::Kernel write_kernel(const GemmProblem& problem, const WgmmaConfig& config,
                            sym::Context& context) {
  kernel::Kernel made;
  kernel::Builder builder(made, context);
  Block block(problem, config, builder);
  PartialSums parts(block);
  Epilogue epilogue(block);
  Multiplier multiplier(block);
  block.init_barriers();
  builder.barrier({});
  block.plain(Op::dependency_wait);
  kernel::Roles roles;
  roles.roles = {{"producer", 0, kWarps, kProducerRegisters},
                 {"consumers", kWarps, kWarps * kConsumers, kConsumerRegisters}};
  const auto body = [](auto f) {
    return [f](const Values&) {
      f();
      return Values();
    };
  };
  const auto produce = [&] { write_producer(block); };
  const auto consume = [&] { write_consumers(block, multiplier, parts, epilogue); };
  builder.operation(Op::roles, {}, {}, roles, {{{}, body(produce)}, {{}, body(consume)}});
  return made;
}

}  // namespace inkle::templates::wgmma
