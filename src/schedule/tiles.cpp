#include "schedule/tiles.h"

#include <algorithm>

#include "schedule/inline.h"
#include "schedule/linear.h"

namespace inkle::schedule {
namespace {

constexpr std::int32_t kSides[] = {128, 64, 32};

}  // namespace

void share_tile(BlockSchedule& blocks, const LoopKernel& loops, const TransposedBytes& transposed,
                const abi::Target& device) {
  const std::int64_t across = sym::hint(loops.outer.back().extent).value_or(4096);
  const std::int64_t down = sym::hint(loops.outer[loops.outer.size() - 2].extent).value_or(4096);
  if (across < 1 || down < 1) return;
  const std::int64_t loads = cost_of(loops.stages.front().body).loads;
  const abi::BlockRules& rules = device.blocks;
  // All loads of a thread are in flight, in few registers; bytes are transposed in words, four
  // accesses.
  const std::int64_t accesses = std::max(rules.tile_accesses, 4 / transposed.narrowest);
  for (const std::int32_t side : kSides) {
    const std::int64_t area = std::int64_t{side} * side;
    const std::int64_t of_one = ((across + side - 1) / side) * ((down + side - 1) / side);
    const std::int64_t tiles = extent_hint(loops.outer) / (across * down) * of_one;
    const std::int64_t threads = area / (accesses * blocks.lanes);
    const bool fits = side % (8 * blocks.lanes) == 0 &&
                      side * transposed.widest <= rules.tile_row &&
                      side * transposed.narrowest >= rules.least_tile_row &&
                      transposed.of_iteration * area <= rules.tile_bytes &&
                      8 * of_one * area <= 9 * across * down;
    // A row is spread over 8 times 16 bytes. Two large tiles are resident on an SM.
    const bool is_large = threads == device.block_threads;
    const bool fill = is_large ? tiles >= rules.large_tiles * device.parallelism &&
                                     loads <= rules.large_tile_loads
                               : tiles >= device.parallelism;
    if (!fits || !fill) continue;
    blocks.mapping = BlockSchedule::Tile{.side = side};
    blocks.threads = static_cast<std::int32_t>(threads);
    return;
  }
}

}  // namespace inkle::schedule
