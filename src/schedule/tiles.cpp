#include "schedule/tiles.h"

#include <algorithm>

#include "schedule/inline.h"
#include "schedule/linear.h"

namespace inkle::schedule {
namespace {

// Two accesses of a thread: all its loads are in flight, in few registers;
// bytes are turned around in words, four accesses. Bytes of a row: x.t() + y of 8192 x 8192 numbers
// of bf16 takes 99.5 us with 256, 101 with 128, and 103.5 with tiles of threads; where one operand
// is of f32, 107, 93.5 (of its bytes: 256) and 119. A row is spread over 8 times 16 bytes.
constexpr std::int64_t kAccesses = 2;
constexpr std::int64_t kRow = 256;
constexpr std::int64_t kLeastRow = 128;
constexpr std::int32_t kSides[] = {128, 64, 32};
constexpr std::int64_t kBytes = 32 << 10;
// Tiles of 1024 threads, of which two are at work on a multiprocessor: the least number for each,
// and the most loads of an iteration.
constexpr std::int64_t kLargeTiles = 4;
constexpr std::int64_t kLargeLoads = 2;

}  // namespace

void share_tile(BlockSchedule& blocks, const LoopKernel& loops, const TurnedBytes& turned,
                const abi::DeviceDescription& device) {
  const std::int64_t across = sym::hint(loops.outer.back().extent).value_or(4096);
  const std::int64_t down = sym::hint(loops.outer[loops.outer.size() - 2].extent).value_or(4096);
  if (across < 1 || down < 1) return;
  const std::int64_t loads = cost_of(loops.stages.front().body).loads;
  const std::int64_t accesses = std::max(kAccesses, 4 / turned.narrowest);
  for (const std::int32_t side : kSides) {
    const std::int64_t area = std::int64_t{side} * side;
    const std::int64_t of_one = ((across + side - 1) / side) * ((down + side - 1) / side);
    const std::int64_t tiles = extent_hint(loops.outer) / (across * down) * of_one;
    const std::int64_t threads = area / (accesses * blocks.lanes);
    const bool fits = side % (8 * blocks.lanes) == 0 && side * turned.widest <= kRow &&
                      side * turned.narrowest >= kLeastRow &&
                      turned.of_iteration * area <= kBytes &&
                      8 * of_one * area <= 9 * across * down;
    const bool is_large = threads == device.block_threads;
    const bool fill = is_large ? tiles >= kLargeTiles * device.parallelism && loads <= kLargeLoads
                               : tiles >= device.parallelism;
    if (!fits || !fill) continue;
    blocks.side = side;
    blocks.threads = static_cast<std::int32_t>(threads);
    return;
  }
}

}  // namespace inkle::schedule
