// Schedules near the model's choice, for measuring.
#include <algorithm>

#include "schedule/blocks.h"
#include "schedule/linear.h"

namespace inkle::schedule {
namespace {

using Axis = BlockSchedule::Axis;

// Accesses of a row that a thread can keep without leaving its registers.
constexpr std::int64_t kMostKept = 8;
constexpr std::int32_t kMostUnrolled = 16;

class Neighbours {
 public:
  Neighbours(const Kernel& kernel, const BlockSchedule& chosen, const abi::Target& device)
      : loops_(std::get<LoopKernel>(kernel.body)), chosen_(chosen), device_(device) {}

  std::vector<BlockSchedule> run() {
    switch (chosen_.axis) {
      case Axis::inner:
        rows();
        break;
      case Axis::outer:
        columns();
        break;
      case Axis::tile:
        tiles();
        break;
    }
    return std::move(found_);
  }

 private:
  void add(const BlockSchedule& b) {
    const bool fits = b.threads >= device_.warp_size && b.threads <= device_.block_threads &&
                      b.unroll >= 1 && b.unroll <= kMostUnrolled && b.lanes >= 1;
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

  void add_row(BlockSchedule b) {
    if (!b.keep || accesses() <= std::int64_t{b.team} * b.cluster * kMostKept) add(b);
  }

  void rows() {
    if (chosen_.team > device_.warp_size) {
      for (std::int32_t team = 2 * device_.warp_size; team <= device_.block_threads; team *= 2) {
        BlockSchedule b = chosen_;
        b.team = b.threads = team;
        add_row(b);
      }
    } else {
      for (const std::int32_t threads : {32, 64, 128, 256, 512}) {
        BlockSchedule b = chosen_;
        b.threads = threads;
        add_row(b);
        b.team = std::max(chosen_.team / 2, 1);
        add_row(b);
      }
    }
    if (chosen_.keep) return;
    for (const std::int32_t unroll : {2, 4, 8, 16}) {
      BlockSchedule b = chosen_;
      b.unroll = unroll;
      add(b);
    }
  }

  void columns() {
    if (chosen_.team == 1) {
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
    const std::int32_t across = chosen_.threads / chosen_.team;
    for (const std::int32_t team : {chosen_.team / 2, chosen_.team, chosen_.team * 2}) {
      for (const std::int32_t unroll : {2, 4, 8}) {
        BlockSchedule b = chosen_;
        b.team = team;
        b.threads = across * team;
        b.unroll = unroll;
        if (team > 1) add(b);
      }
    }
  }

  void tiles() {
    BlockSchedule b = chosen_;
    b.side = 0;
    b.threads = kTileAcross * kTileDown;
    add(b);
    for (const std::int32_t side : {32, 64, 128}) {
      for (const std::int32_t accesses : {2, 4}) {
        b.side = side;
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
