// Schedules near the model's choice, for measuring.
#include <algorithm>

#include "schedule/blocks.h"
#include "schedule/linear.h"

namespace inkle::schedule {
namespace {

using Columns = BlockSchedule::Columns;
using Rows = BlockSchedule::Rows;
using Tile = BlockSchedule::Tile;

// Accesses of a row that a thread can keep without leaving its registers.
constexpr std::int64_t kMostKept = 8;
constexpr std::int32_t kMostUnrolled = 16;

class Neighbours {
 public:
  Neighbours(const Kernel& kernel, const BlockSchedule& chosen, const abi::Target& device)
      : loops_(std::get<LoopKernel>(kernel.body)), chosen_(chosen), device_(device) {}

  std::vector<BlockSchedule> run() {
    if (const auto* chosen = std::get_if<Rows>(&chosen_.mapping)) rows(*chosen);
    if (const auto* chosen = std::get_if<Columns>(&chosen_.mapping)) columns(*chosen);
    if (chosen_.is<Tile>()) tiles();
    return std::move(found_);
  }

 private:
  void add(const BlockSchedule& b) {
    const bool fits =
        b.threads >= device_.warp_size && b.threads <= device_.block_threads && b.lanes >= 1;
    if (!fits || b == chosen_ || std::find(found_.begin(), found_.end(), b) != found_.end()) return;
    found_.push_back(b);
  }

  // Accesses of the longest row; 0 if its length is not known.
  std::int64_t accesses() const {
    std::int64_t longest = 0;
    for (const Stage& stage : loops_.stages) {
      if (!stage.inner.empty()) longest = std::max(longest, extent_hint(stage.inner));
    }
    return (longest + chosen_.lanes - 1) / chosen_.lanes;
  }

  // `chosen_` with another mapping and number of threads.
  [[nodiscard]] BlockSchedule with(const Rows& rows, std::int32_t threads) const {
    BlockSchedule b = chosen_;
    b.mapping = rows;
    b.threads = threads;
    return b;
  }

  void add_row(const Rows& rows, std::int32_t threads) {
    const std::int64_t kept = std::int64_t{rows.team} * rows.cluster * kMostKept;
    if (!rows.keep || accesses() <= kept) add(with(rows, threads));
  }

  void rows(const Rows& chosen) {
    Rows rows = chosen;
    if (chosen.team > device_.warp_size) {
      for (rows.team = 2 * device_.warp_size; rows.team <= device_.block_threads; rows.team *= 2) {
        add_row(rows, rows.team);
      }
    } else {
      for (const std::int32_t threads : {32, 64, 128, 256, 512}) {
        add_row(chosen, threads);
        rows.team = std::max(chosen.team / 2, 1);
        add_row(rows, threads);
      }
    }
    if (chosen.keep) return;
    rows = chosen;
    for (rows.unroll = 2; rows.unroll <= kMostUnrolled; rows.unroll *= 2) {
      add(with(rows, chosen_.threads));
    }
  }

  void columns(const Columns& chosen) {
    if (chosen.team == 1) {
      for (const std::int32_t threads : {64, 128, 256, 512}) {
        BlockSchedule b = chosen_;
        b.threads = threads;
        add(b);
        if (b.lanes == 1) continue;
        b.lanes /= 2;
        add(b);
      }
      return;
    }
    const std::int32_t across = chosen_.threads / chosen.team;
    for (const std::int32_t team : {chosen.team / 2, chosen.team, chosen.team * 2}) {
      for (const std::int32_t unroll : {2, 4, 8}) {
        BlockSchedule b = chosen_;
        b.mapping = Columns{.team = team, .unroll = unroll};
        b.threads = across * team;
        if (team > 1) add(b);
      }
    }
  }

  void tiles() {
    BlockSchedule b = chosen_;
    b.mapping = Tile{};
    b.threads = kTileAcross * kTileDown;
    add(b);
    for (const std::int32_t side : {32, 64, 128}) {
      for (const std::int32_t accesses : {2, 4}) {
        b.mapping = Tile{.side = side};
        b.threads = side * side / (accesses * b.lanes);
        add(b);
      }
    }
  }

  const LoopKernel& loops_;
  const BlockSchedule& chosen_;
  const abi::Target& device_;
  std::vector<BlockSchedule> found_;
};

}  // namespace

std::vector<BlockSchedule> candidate_blocks(const Kernel& kernel, const BlockSchedule& chosen,
                                            const abi::Target& device) {
  const auto* loops = std::get_if<LoopKernel>(&kernel.body);
  // The parts of sequential rows were split for one schedule.
  if (loops == nullptr || loops->sequential != 0) return {};
  return Neighbours(kernel, chosen, device).run();
}

}  // namespace inkle::schedule
