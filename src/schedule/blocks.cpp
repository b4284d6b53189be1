#include "schedule/blocks.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "schedule/density.h"
#include "schedule/linear.h"
#include "schedule/tiles.h"

namespace inkle::schedule {
namespace {

using loop::Opcode;
using Axis = BlockSchedule::Axis;

// Bytes of one memory access of a thread.
constexpr std::int64_t kAccess = 16;
// More lanes than this make bodies long and save nothing: bytes then share an access of 8.
constexpr std::int32_t kMostLanes = 8;
// Accesses of a row that one thread keeps: 4 keep every load of a block in flight at once, at 32
// registers a thread.
constexpr std::int64_t kKeptAccesses = 4;
// Most of them, for rows that would otherwise take a cluster, or be read twice.
constexpr std::int64_t kMostKeptAccesses = 8;

// Accesses of a thread from which a warp that has a row is a block of its own: 32 blocks of a
// multiprocessor have enough on the way (layer norms of 16384 rows of 768: 19.1 us, 20.4 with four
// warps; of sums of 1024: 31.5, 32.9; but with two accesses, softmax of 512: 65, 53).
constexpr std::int64_t kOwnBlockAccesses = 3;

// Shorter rows that are no whole number of accesses are read element by element.
constexpr std::int64_t kLeastRaggedRow = 512;

// The same of a row in which a maximum is searched for, once it is known (8192 columns of
// bf16: 36.4 us with 2, 38.4 with 4, 38.8 with 8; remembering where each thread's maximum
// was: 39.3).
constexpr std::int64_t kSearchedAccesses = 2;

// Accesses of a row that a thread has in flight where each is used once and forgotten.
constexpr std::int32_t kReadAccesses = 8;
// Accesses of a part of 32 KB of a reduction, and of each of its threads.
constexpr std::int64_t kShortBlock = 2048;
constexpr std::int32_t kShortAccesses = 2;
// Threads of a scan: with more, the wait for the last warp shows (rows of 8192: 3.36 TB/s with
// 1024, 3.55 with 512, 3.64 with 256).
constexpr std::int32_t kMostScanThreads = 256;
// Rows of a scan that are shared: with fewer of them than so many for each multiprocessor, of so
// many chunks at least; accesses of a thread, of one element at most.
constexpr std::int64_t kFewRows = 4;
constexpr std::int64_t kLeastChunks = 4;
constexpr std::int32_t kChunkAccesses = 4;
constexpr std::int32_t kMostChunkAccesses = 8;

// Of sizes that are not known, over those that a program is compiled with.
constexpr std::int64_t kExpectedGrowth = 4;
// Columns of this length and more, in few blocks: groups of lanes next to each other, and threads
// of a block.
constexpr std::int64_t kLongColumn = 128;
constexpr std::int32_t kFewColumns = 8;
constexpr std::int32_t kColumnThreads = 512;
// With more loads in a pass, fewer of its iterations are in flight.
constexpr std::int64_t kColumnStreams = 6;

// Bytes that the rows of a block hand over between their threads, beside what joins their sums.
constexpr std::int64_t kMostHandedOver = 32 << 10;

// Rows that are walked: registers of a thread for their sums, at most; of one that shares a row
// with its warp alone, which then waits for nobody, more of them, with what is kept of the row.
// Eight warps' sums, half of them at a time, are joined in 24 KB.
constexpr std::int64_t kMostWalked = 32;
constexpr std::int64_t kMostWalkedElements = 16;
constexpr std::int64_t kMostWalkedOfWarp = 96;
constexpr std::int32_t kWarp = 32;
constexpr std::int32_t kWarpsOfWalk = 8;
constexpr std::int32_t kMostWalkThreads = 1024;

std::int32_t power_above(std::int64_t n) {
  return static_cast<std::int32_t>(
      std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(n, 1))));
}

class Chooser {
 public:
  Chooser(Kernel& kernel, const abi::DeviceDescription& device, sym::Context& context)
      : kernel_(kernel),
        loops_(std::get<LoopKernel>(kernel.body)),
        device_(device),
        context_(context) {}

  BlockSchedule run() {
    if (loops_.outer.empty()) {
      loops_.outer.push_back({context_.index(context_.constant(1)), context_.constant(1)});
    }
    for (const Stage& stage : loops_.stages) {
      has_inner_ = has_inner_ || !stage.inner.empty();
      serial_ = serial_ || (stage.kind == StageKind::scatter && !stage.inner.empty());
      scan_ = scan_ || stage.kind == StageKind::scan;
    }
    if (loops_.walked != 0) return walk();
    if (!has_inner_ && has_odd_rows()) {
      loops_.stages[0].inner = {loops_.outer.back()};
      loops_.outer.pop_back();
      return rows();
    }
    if (!has_inner_) return elementwise();
    const std::optional<std::size_t> across = column_loop();
    if (serial_) return serial();
    if (!across || handed_over() > 0) return rows();
    move_last(*across);
    return columns();
  }

 private:
  std::vector<WeightedOffset> offsets() const { return all_offsets(loops_, kernel_.params.size()); }

  void move_last(std::size_t d) {
    const auto at = loops_.outer.begin() + static_cast<std::ptrdiff_t>(d);
    std::rotate(at, at + 1, loops_.outer.end());
  }

  // The outer loop along which accesses are denser than along the inner loops, if there is one.
  std::optional<std::size_t> column_loop() const {
    double best = 0;
    for (const Stage& stage : loops_.stages) {
      if (stage.inner.empty() || stage.kind == StageKind::scatter) continue;
      best += density(offsets_of(stage, kernel_.params.size()), stage.inner.back().variable);
    }
    std::optional<std::size_t> found;
    for (std::size_t d = 0; d < loops_.outer.size(); ++d) {
      const double score = density(offsets(), loops_.outer[d].variable);
      if (sym::hint(loops_.outer[d].extent).value_or(4096) < 4 || score <= best) continue;
      best = score;
      found = d;
    }
    return found;
  }

  // Lanes along `variable`: as many neighbours as the narrowest dense access has in 16 bytes, if
  // all groups of them are whole, or if there is but one ragged group (`may_end_ragged`).
  std::int32_t lanes_along(Expr variable, Expr extent, bool may_end_ragged) const {
    std::int64_t narrowest = kAccess;
    for (const WeightedOffset& access : offsets()) {
      const auto stride = sym::stride(access.offset, variable);
      const bool dense = sym::contains(access.offset, variable) && stride && stride->is_constant(1);
      if (!dense) continue;
      narrowest = std::min(narrowest, abi::size_of(kernel_.params[access.buffer].dtype));
    }
    if (narrowest == kAccess) return 1;
    auto lanes = static_cast<std::int32_t>(std::min<std::int64_t>(kAccess / narrowest, kMostLanes));
    while (lanes > 1 && !may_end_ragged && !sym::divides(lanes, extent)) lanes /= 2;
    return lanes;
  }

  // Whether the loops are many long rows that are no whole number of accesses. A block then goes
  // along a row, which finds whole accesses in it and computes once what a row has in common: the
  // gradient of cross entropy over 8192 rows of 50257, 0.62 ms of traffic, took 1.95 ms element by
  // element.
  bool has_odd_rows() const {
    if (loops_.outer.size() < 2 || loops_.stages.size() != 1 || kernel_.instances > 1 ||
        loops_.stages[0].kind != StageKind::pointwise) {
      return false;
    }
    const Dim& last = loops_.outer.back();
    if (!last.extent.is_constant() || *last.extent.constant() < kLeastRaggedRow) return false;
    const std::int64_t rows = extent_hint(loops_.outer) / *last.extent.constant();
    if (rows < 4 * std::int64_t{device_.parallelism}) return false;
    // Whole accesses start at the same places in all buffers.
    Expr common;
    for (const WeightedOffset& access : offsets()) {
      if (!sym::contains(access.offset, last.variable)) continue;
      const auto stride = sym::stride(access.offset, last.variable);
      const bool is_dense = stride && stride->is_constant(1);
      if (!is_dense || (!common.is_null() && !(common == access.offset))) return false;
      common = access.offset;
    }
    return lanes_along(last.variable, last.extent, false) <
           lanes_along(last.variable, last.extent, true);
  }

  // Fewer lanes where threads would not fill the device. Sizes that are not known are taken to be
  // larger than those at hand: few lanes cost a large call more than many a small one.
  std::int32_t fill(std::int32_t lanes) const {
    const bool is_known = extent_product(loops_.outer, context_).is_constant();
    const std::int64_t elements = extent_hint(loops_.outer) * (is_known ? 1 : kExpectedGrowth);
    const std::int64_t wanted = std::int64_t{device_.parallelism} * 512;
    while (lanes > 1 && elements / lanes < wanted) lanes /= 2;
    return lanes;
  }

  BlockSchedule elementwise() {
    if (const auto turned = tile()) return *turned;
    BlockSchedule b;
    b.axis = Axis::outer;
    const Dim& last = loops_.outer.back();
    b.lanes = fill(lanes_along(last.variable, last.extent, loops_.outer.size() == 1));
    b.threads = 128;
    return b;
  }

  // Stores along the last loop, loads along another one, both in whole groups.
  std::optional<BlockSchedule> tile() {
    if (loops_.outer.size() < 2 || loops_.stages.size() != 1 ||
        loops_.stages[0].kind != StageKind::pointwise) {
      return std::nullopt;
    }
    const Dim last = loops_.outer.back();
    const auto is_dense = [](const WeightedOffset& access, Expr variable) {
      const auto stride = sym::stride(access.offset, variable);
      return sym::contains(access.offset, variable) && stride && stride->is_constant(1);
    };
    std::int64_t narrowest = kAccess;
    TurnedBytes turned;
    std::optional<std::size_t> other;
    for (const WeightedOffset& access : offsets()) {
      const std::int64_t size = abi::size_of(kernel_.params[access.buffer].dtype);
      if (is_dense(access, last.variable)) {
        narrowest = std::min(narrowest, size);
        turned.widest = std::max(turned.widest, size);
      }
      if (access.is_store && !is_dense(access, last.variable)) return std::nullopt;
      for (std::size_t d = 0; d + 1 < loops_.outer.size(); ++d) {
        // What is the same all along the row is no column of anything.
        if (is_dense(access, loops_.outer[d].variable) &&
            sym::contains(access.offset, last.variable)) {
          other = d;
          narrowest = std::min(narrowest, size);
          turned.widest = std::max(turned.widest, size);
          turned.narrowest = std::min(turned.narrowest, size);
          turned.of_iteration += size;
        }
      }
    }
    const auto lanes =
        static_cast<std::int32_t>(std::min<std::int64_t>(kAccess / narrowest, kMostLanes));
    const sym::Range total = sym::bounds(extent_product(loops_.outer, context_));
    if (!other || lanes < 2 || total.high > (std::int64_t{1} << 31) - 1 ||
        !sym::divides(lanes, last.extent) || !sym::divides(lanes, loops_.outer[*other].extent)) {
      return std::nullopt;
    }
    const auto at = loops_.outer.begin() + static_cast<std::ptrdiff_t>(*other);
    std::rotate(at, at + 1, loops_.outer.end() - 1);
    BlockSchedule b;
    b.axis = Axis::tile;
    b.threads = kTileAcross * kTileDown;
    b.lanes = lanes;
    share_tile(b, loops_, turned, device_);
    return b;
  }

  BlockSchedule serial() {
    BlockSchedule b;
    b.axis = Axis::outer;
    b.threads = 128;
    return b;
  }

  BlockSchedule walk() const {
    BlockSchedule b;
    b.axis = Axis::inner;
    b.keep = true;
    const Expr extent = longest();
    b.lanes = row_lanes();
    for (const Stage& stage : loops_.stages) {
      if (stage.inner.empty()) continue;
      while (!sym::divides(b.lanes, extent_product(stage.inner, context_))) b.lanes /= 2;
    }
    const auto sums = std::count_if(loops_.scratch.begin(), loops_.scratch.end(),
                                    [](const Scratch& scratch) { return scratch.walks; });
    const WalkTeam team = walk_team(sym::hint(extent).value_or(4096), sums, b.lanes);
    b.team = team.team;
    b.threads = team.threads;
    return b;
  }

  Expr longest() const {
    Expr longest;
    std::int64_t most = -1;
    for (const Stage& stage : loops_.stages) {
      if (stage.inner.empty()) continue;
      const std::int64_t hint = extent_hint(stage.inner);
      if (hint > most) longest = extent_product(stage.inner, context_);
      most = std::max(most, hint);
    }
    return longest;
  }

  // Lanes that fit the inner loops of all stages.
  std::int32_t row_lanes() const {
    std::int32_t lanes = kMostLanes;
    bool dense_somewhere = false;
    for (const Stage& stage : loops_.stages) {
      if (stage.inner.empty() || stage.phase != Phase::each) continue;
      const Expr extent = stage.inner.back().extent;
      std::int64_t narrowest = kAccess;
      for (const WeightedOffset& access : offsets_of(stage, kernel_.params.size())) {
        const auto stride = sym::stride(access.offset, stage.inner.back().variable);
        const bool dense = sym::contains(access.offset, stage.inner.back().variable) && stride &&
                           stride->is_constant(1);
        if (dense) {
          narrowest = std::min(narrowest, abi::size_of(kernel_.params[access.buffer].dtype));
        }
      }
      if (narrowest < kAccess) {
        lanes = std::min<std::int32_t>(lanes, static_cast<std::int32_t>(kAccess / narrowest));
      }
      dense_somewhere = dense_somewhere || narrowest < kAccess;
      // Rows of one loop may start and end in the middle of an access.
      const bool may_be_ragged =
          stage.inner.size() == 1 && extent_hint(stage.inner) >= kLeastRaggedRow;
      while (lanes > 1 && !may_be_ragged && !sym::divides(lanes, extent)) lanes /= 2;
    }
    return dense_somewhere ? lanes : 1;
  }

  // Bytes of a row's values that its threads hand over to each other, which a block keeps: those
  // that are read at other places than where they are made, and so not computed again.
  std::int64_t handed_over() const {
    std::vector<bool> is_read(loops_.scratch.size(), false);
    for (const Stage& stage : loops_.stages) {
      for (const loop::Instruction& i : stage.body.instructions) {
        if (i.opcode != Opcode::load || i.buffer < kernel_.params.size()) continue;
        if (!is_read_in_place(i, stage)) is_read[i.buffer - kernel_.params.size()] = true;
      }
    }
    std::int64_t bytes = 0;
    for (std::size_t s = 0; s < loops_.scratch.size(); ++s) {
      const Scratch& scratch = loops_.scratch[s];
      if (!is_read[s] || scratch.walks || scratch.elements.is_constant(1)) continue;
      bytes += sym::hint(scratch.elements).value_or(4096) * abi::size_of(scratch.dtype);
    }
    return bytes;
  }

  bool is_read_in_place(const loop::Instruction& load, const Stage& reader) const {
    const auto is_dense = [&](Expr offset, const Stage& stage) {
      Expr running = context_.constant(1), dense = context_.constant(0);
      for (std::size_t d = stage.inner.size(); d-- > 0;) {
        dense = dense + stage.inner[d].variable * running;
        running = running * stage.inner[d].extent;
      }
      return offset == dense;
    };
    for (const Stage& stage : loops_.stages) {
      for (const StageStore& store : stage.stores) {
        if (store.target != load.buffer) continue;
        return extent_product(stage.inner, context_) == extent_product(reader.inner, context_) &&
               is_dense(store.offset, stage) && is_dense(load.indices[0], reader);
      }
    }
    return false;
  }

  // Whether every stage's loop along the row has a length that is known and not 0: what is kept of
  // a row is declared by its length.
  bool inner_is_constant() const {
    return std::all_of(loops_.stages.begin(), loops_.stages.end(), [](const Stage& stage) {
      return std::all_of(stage.inner.begin(), stage.inner.end(), [](const Dim& loop) {
        const auto extent = loop.extent.constant();
        return extent && *extent > 0;
      });
    });
  }

  static bool has_position(const Stage& stage) {
    return stage.kind == StageKind::reduction &&
           (stage.reduce == loop::ReduceOp::argmin || stage.reduce == loop::ReduceOp::argmax);
  }

  // Whether the place of an extreme value is looked for among kept ones: of rows that a block keeps
  // whole.
  bool searches(const Stage& stage) const {
    if (!has_position(stage) || stage.inner.empty()) return false;
    const Expr extent = extent_product(stage.inner, context_);
    const auto length = extent.constant();
    const std::int32_t lanes = row_lanes();
    return length && sym::divides(lanes, extent) &&
           *length <= std::int64_t{lanes} * kSearchedAccesses * device_.block_threads;
  }

  // Whether several stages read the same memory, or need what another has computed.
  bool reads_again() const {
    std::size_t passes = 0;
    const Stage* before = nullptr;
    for (const Stage& stage : loops_.stages) {
      if (stage.inner.empty()) continue;
      // A maximum and the exponentials below it are found together.
      const bool together = before != nullptr && before->kind == StageKind::reduction &&
                            before->reduce == loop::ReduceOp::max &&
                            stage.kind == StageKind::reduction &&
                            stage.reduce == loop::ReduceOp::sum &&
                            stage.body[stage.body.yields[0]].opcode == Opcode::exp;
      before = &stage;
      if (together) continue;
      ++passes;
      if (stage.kind == StageKind::reduction && stage.reduce == loop::ReduceOp::welford) ++passes;
      if (searches(stage)) ++passes;
    }
    return passes > 1;
  }

  BlockSchedule rows() {
    BlockSchedule b;
    b.axis = Axis::inner;
    b.lanes = row_lanes();
    const Expr extent = longest();
    const std::int64_t length = sym::hint(extent).value_or(4096);
    const std::int64_t accesses = (length + b.lanes - 1) / b.lanes;
    const bool can_keep = inner_is_constant() && !extent.is_constant(0) && reads_again() && !scan_;
    const bool many =
        sym::hint(extent_product(loops_.outer, context_)).value_or(4096) >= 4 * device_.parallelism;
    if (scan_ && share_rows(b, extent)) return b;
    if (scan_) {
      b.team = std::clamp(power_above(accesses), 32, kMostScanThreads);
    } else if (!can_keep && many && accesses == kShortBlock && is_part()) {
      b.team = kShortBlock / kShortAccesses;
    } else if (!can_keep && accesses > 128 && many) {
      // Read once: fewer threads, each with more accesses in flight.
      b.team = std::min(power_above((accesses + kReadAccesses - 1) / kReadAccesses), 128);
    } else if (accesses <= 128) {
      b.team = std::min(power_above(accesses), 32);
    } else {
      const bool search = std::any_of(loops_.stages.begin(), loops_.stages.end(), has_position);
      const std::int64_t each = search ? kSearchedAccesses : kKeptAccesses;
      b.team = std::min(power_above((accesses + each - 1) / each), 1024);
    }
    b.threads = std::max(b.team, b.team <= 32 ? 128 : b.team);
    const std::int64_t handed = handed_over();
    while (b.threads > b.team && handed * (b.threads / b.team) > kMostHandedOver) {
      b.threads /= 2;
    }
    b.keep = can_keep && accesses <= std::int64_t{b.team} * kMostKeptAccesses;
    if (can_keep && !b.keep) read_twice_or_share(b, accesses);
    if (b.keep && b.team == kWarp && stores_rows() &&
        accesses * row_loads() >= kOwnBlockAccesses * kWarp) {
      b.threads = kWarp;
    }
    if (!b.keep && !scan_) {
      const bool at_once = accesses <= std::int64_t{b.team} * kReadAccesses && b.team <= 128;
      const bool is_short = accesses == std::int64_t{b.team} * kShortAccesses;
      // Ragged rows are written out three times more, for their ends and what is left of them.
      const bool ragged = !sym::divides(b.lanes, extent);
      b.unroll = ragged     ? (reads_again() ? 4 : kReadAccesses)
                 : at_once  ? kReadAccesses
                 : is_short ? kShortAccesses
                            : 4;
    }
    return b;
  }

  // Loads along a row, of that row alone, of the stage that has most of them.
  std::int64_t row_loads() const {
    std::int64_t most = 0;
    for (const Stage& stage : loops_.stages) {
      if (stage.inner.empty()) continue;
      most = std::max(most, std::count_if(stage.body.instructions.begin(),
                                          stage.body.instructions.end(), [&](const auto& i) {
                                            return i.opcode == Opcode::load && is_of_row(i);
                                          }));
    }
    return most;
  }

  bool stores_rows() const {
    const Stage& last = loops_.stages.back();
    return last.kind == StageKind::pointwise && !last.inner.empty();
  }

  bool is_of_row(const loop::Instruction& load) const {
    return load.buffer < kernel_.params.size() &&
           std::any_of(loops_.outer.begin(), loops_.outer.end(), [&](const Dim& dim) {
             return sym::contains(load.indices[0], dim.variable);
           });
  }

  // One number a row, as of the parts of a reduction (reductions.cpp).
  bool is_part() const {
    return loops_.outer.size() == 1 && loops_.stages.size() == 2 &&
           loops_.stages.front().kind == StageKind::reduction &&
           loops_.stages.back().stores.size() == 1;
  }

  // A scan of few long rows: blocks share them, in chunks.
  bool share_rows(BlockSchedule& b, Expr extent) const {
    const Expr all = extent_product(loops_.outer, context_);
    const std::int32_t lanes = all.is_constant(1) || sym::divides(b.lanes, extent) ? b.lanes : 1;
    const std::int32_t chunk = lanes == 1 ? kMostChunkAccesses : kChunkAccesses;
    const std::int64_t of_block = std::int64_t{kMostScanThreads} * lanes * chunk;
    if (loops_.stages.size() != 1 || sym::hint(extent).value_or(0) < kLeastChunks * of_block ||
        sym::hint(all).value_or(4096) >= kFewRows * device_.parallelism) {
      return false;
    }
    b.lanes = lanes;
    b.chunk = chunk;
    b.team = b.threads = kMostScanThreads;
    return true;
  }

  // Rows too long for a block's registers. The second reading finds them in the cache that all
  // share if few rows are under way, so blocks are large (softmax of 512 rows of 131072: 108 us
  // with blocks of 512 threads, 86 with 1024). Sharing a row among the blocks of a cluster takes
  // longer (109 to 197 us, with 2 to 8 blocks, kept; 90 to 99 read twice), and the row in shared
  // memory, each next one fetched while one is written, as long (89 us), so that is for where rows
  // alone do not fill the device.
  void read_twice_or_share(BlockSchedule& b, std::int64_t accesses) const {
    b.team = b.threads = 1024;
    const std::int64_t rows = sym::hint(extent_product(loops_.outer, context_)).value_or(4096);
    constexpr std::int64_t kPart = 512 * kMostKeptAccesses;
    const std::int32_t cluster = power_above((accesses + kPart - 1) / kPart);
    if (rows >= device_.parallelism || cluster > device_.cluster_blocks) return;
    if (handed_over() > 0) return;  // within one block
    b.team = b.threads = 512;
    b.cluster = cluster;
    b.keep = true;
  }

  BlockSchedule columns() {
    BlockSchedule b;
    b.axis = Axis::outer;
    const Dim& last = loops_.outer.back();
    const std::int64_t elements = extent_hint(loops_.outer);
    const std::int64_t length = sym::hint(longest()).value_or(4096);
    b.lanes = lanes_along(last.variable, last.extent, loops_.outer.size() == 1);
    if (scan_) {
      b.lanes = fill(b.lanes);
      b.threads = 128;
      b.unroll = 4;
      return b;
    }
    b.threads = 256;
    const std::int64_t groups = sym::hint(last.extent).value_or(4096) / b.lanes;
    std::int32_t across = std::clamp(power_above(groups), 1, 32);
    // Few columns, as of the parts of sums: what takes long is how far each thread has to walk.
    const std::int64_t blocks = elements / (std::int64_t{across} * b.lanes);
    if (blocks < device_.parallelism / 4 && length >= kLongColumn) {
      across = std::min(across, kFewColumns);
      b.threads = kColumnThreads;
    }
    b.team = std::min(b.threads / across, power_above(length / 4));
    if (b.team * across < b.threads) b.threads = std::max(32, b.team * across);
    if (b.team < 1) b.team = 1;
    b.unroll = streams() > kColumnStreams ? 2 : 4;
    return b;
  }

  // Loads along the columns, in one pass or several.
  std::int64_t streams() const {
    std::int64_t count = 0;
    for (const Stage& stage : loops_.stages) {
      if (stage.inner.empty()) continue;
      for (const loop::Instruction& i : stage.body.instructions) {
        if (i.opcode == Opcode::load && sym::contains(i.indices[0], stage.inner.back().variable)) {
          ++count;
        }
      }
    }
    return count;
  }

  Kernel& kernel_;
  LoopKernel& loops_;
  const abi::DeviceDescription& device_;
  sym::Context& context_;
  bool has_inner_ = false;
  bool serial_ = false;
  bool scan_ = false;
};

}  // namespace

WalkTeam walk_team(std::int64_t columns, std::int64_t sums, std::int32_t lanes) {
  const auto elements = [&](std::int64_t team) {
    return (columns + lanes * team - 1) / (lanes * team) * lanes;
  };
  // Two tensors are kept, of elements of 16 / lanes bytes.
  const std::int64_t kept = 2 * elements(kWarp) * (kAccess / lanes) / 4;
  if (elements(kWarp) * sums + kept <= kMostWalkedOfWarp) return {kWarp, kWarpsOfWalk * kWarp};
  std::int32_t team = 2 * kWarp;
  const auto is_much = [&](std::int64_t threads) {
    return elements(threads) * sums > kMostWalked || elements(threads) > kMostWalkedElements;
  };
  while (team < kMostWalkThreads && is_much(team)) team *= 2;
  return {team, team};
}

Schedule choose_blocks(Kernel& kernel, const abi::DeviceDescription& device,
                       sym::Context& context) {
  Schedule schedule;
  schedule.blocks = Chooser(kernel, device, context).run();
  return schedule;
}

}  // namespace inkle::schedule
