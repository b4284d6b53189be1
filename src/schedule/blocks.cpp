#include "schedule/blocks.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "schedule/legal_blocks.h"
#include "schedule/linear.h"
#include "schedule/loop_facts.h"
#include "schedule/tiles.h"

namespace inkle::schedule {
namespace {

using loop::Opcode;
using Columns = BlockSchedule::Columns;
using Rows = BlockSchedule::Rows;
using Tile = BlockSchedule::Tile;

// Of sizes that are not known, over those that a program is compiled with.
constexpr std::int64_t kExpectedGrowth = 4;
constexpr std::int32_t kWarp = 32;

std::int32_t power_above(std::int64_t n) {
  return static_cast<std::int32_t>(
      std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(n, 1))));
}

class Chooser {
 public:
  Chooser(Kernel& kernel, const abi::Target& device, sym::Context& context)
      : kernel_(kernel),
        loops_(std::get<LoopKernel>(kernel.body)),
        device_(device),
        rules_(device.blocks),
        context_(context),
        facts_(kernel, device, context) {}

  BlockSchedule run() {
    if (loops_.outer.empty()) {
      loops_.outer.push_back({context_.index(context_.constant(1)), context_.constant(1)});
    }
    for (const Stage& stage : loops_.stages) {
      has_inner_ = has_inner_ || !stage.inner.empty();
      serial_ = serial_ || (stage.kind == StageKind::scatter && !stage.inner.empty());
      scan_ = scan_ || stage.kind == StageKind::scan;
    }
    if (loops_.sequential != 0) return sequential_rows();
    if (!has_inner_ && facts_.has_odd_rows()) {
      loops_.stages[0].inner = {loops_.outer.back()};
      loops_.outer.pop_back();
      return rows();
    }
    if (!has_inner_) return elementwise();
    const std::optional<std::size_t> across = facts_.column_loop();
    if (serial_) return serial();
    if (!across || facts_.handed_over() > 0) return rows();
    move_last(*across);
    return columns();
  }

 private:
  void move_last(std::size_t d) {
    const auto at = loops_.outer.begin() + static_cast<std::ptrdiff_t>(d);
    std::rotate(at, at + 1, loops_.outer.end());
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
    if (const auto transposed = tile()) return *transposed;
    BlockSchedule b;
    const Dim& last = loops_.outer.back();
    b.lanes = fill(facts_.lanes_along(last.variable, last.extent, loops_.outer.size() == 1));
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
    TransposedBytes transposed;
    std::optional<std::size_t> other;
    for (const WeightedOffset& access : facts_.offsets()) {
      const std::int64_t size = abi::size_of(kernel_.params[access.buffer].dtype);
      if (is_dense(access, last.variable)) {
        narrowest = std::min(narrowest, size);
        transposed.widest = std::max(transposed.widest, size);
      }
      if (access.is_store && !is_dense(access, last.variable)) return std::nullopt;
      for (std::size_t d = 0; d + 1 < loops_.outer.size(); ++d) {
        // Loads that are uniform along the row are not columns.
        if (is_dense(access, loops_.outer[d].variable) &&
            sym::contains(access.offset, last.variable)) {
          other = d;
          narrowest = std::min(narrowest, size);
          transposed.widest = std::max(transposed.widest, size);
          transposed.narrowest = std::min(transposed.narrowest, size);
          transposed.of_iteration += size;
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
    b.mapping = Tile{};
    b.threads = kTileAcross * kTileDown;
    b.lanes = lanes;
    share_tile(b, loops_, transposed, device_);
    return b;
  }

  BlockSchedule serial() {
    BlockSchedule b;
    b.threads = 128;
    return b;
  }

  BlockSchedule sequential_rows() const {
    BlockSchedule b;
    const Expr extent = facts_.longest();
    b.lanes = facts_.row_lanes();
    for (const Stage& stage : loops_.stages) {
      if (stage.inner.empty()) continue;
      while (!sym::divides(b.lanes, extent_product(stage.inner, context_))) b.lanes /= 2;
    }
    const auto sums = std::count_if(loops_.scratch.begin(), loops_.scratch.end(),
                                    [](const Scratch& scratch) { return scratch.is_carried; });
    const SequentialTeam team =
        sequential_team(sym::hint(extent).value_or(4096), sums, b.lanes, rules_);
    b.mapping = Rows{.team = team.team, .keep = true};
    b.threads = team.threads;
    return b;
  }

  BlockSchedule rows() {
    BlockSchedule b;
    auto& rows = b.mapping.emplace<Rows>();
    b.lanes = facts_.row_lanes();
    const Expr extent = facts_.longest();
    const std::int64_t length = sym::hint(extent).value_or(4096);
    const std::int64_t accesses = (length + b.lanes - 1) / b.lanes;
    const bool can_keep =
        facts_.inner_is_constant() && !extent.is_constant(0) && facts_.reads_again() && !scan_;
    const bool many =
        sym::hint(extent_product(loops_.outer, context_)).value_or(4096) >= 4 * device_.parallelism;
    if (scan_ && share_rows(b, extent)) return b;
    if (scan_) {
      rows.team = std::clamp(power_above(accesses), kWarp, rules_.scan_threads);
    } else if (!can_keep && many && is_short_part(accesses)) {
      rows.team = power_above((accesses + rules_.part_accesses - 1) / rules_.part_accesses);
    } else if (!can_keep && accesses > 128 && many) {
      // Read once: fewer threads, each with more accesses in flight.
      rows.team =
          std::min(power_above((accesses + rules_.read_accesses - 1) / rules_.read_accesses), 128);
    } else if (accesses <= 128) {
      rows.team = std::min(power_above(accesses), 32);
    } else {
      const bool search =
          std::any_of(loops_.stages.begin(), loops_.stages.end(), LoopFacts::has_position);
      const std::int64_t each = search ? rules_.searched_accesses : rules_.kept_accesses;
      rows.team = std::min(power_above((accesses + each - 1) / each), 1024);
    }
    b.threads = std::max(rows.team, rows.team <= 32 ? 128 : rows.team);
    const std::int64_t handed = facts_.handed_over();
    while (b.threads > rows.team && handed * (b.threads / rows.team) > rules_.exchanged_bytes) {
      b.threads /= 2;
    }
    rows.keep = can_keep && accesses <= std::int64_t{rows.team} * rules_.most_kept_accesses;
    if (can_keep && !rows.keep) read_twice_or_share(b, accesses);
    if (rows.keep && rows.team == kWarp && facts_.stores_rows() &&
        accesses * facts_.row_loads() >= rules_.own_block_accesses * kWarp) {
      b.threads = kWarp;
    }
    if (!rows.keep && !scan_) {
      const bool at_once =
          accesses <= std::int64_t{rows.team} * rules_.read_accesses && rows.team <= 128;
      const bool is_short = accesses <= std::int64_t{rows.team} * rules_.part_accesses;
      // Ragged rows add three copies of the body, for their ends and the remainder.
      const bool ragged = !sym::divides(b.lanes, extent);
      rows.unroll = ragged     ? (facts_.reads_again() ? 4 : rules_.read_accesses)
                    : at_once  ? rules_.read_accesses
                    : is_short ? rules_.part_accesses
                               : 4;
    }
    return b;
  }

  // A part of a split reduction, of about the bytes that make a block short (parts_of_blocks).
  bool is_short_part(std::int64_t accesses) const {
    const std::int64_t whole = rules_.part_bytes / device_.vector_bytes;
    return facts_.is_part() && accesses > whole / 2 && accesses <= whole;
  }

  // A scan of few long rows: blocks share them, in chunks.
  bool share_rows(BlockSchedule& b, Expr extent) const {
    const Expr all = extent_product(loops_.outer, context_);
    const std::int32_t lanes = all.is_constant(1) || sym::divides(b.lanes, extent) ? b.lanes : 1;
    const std::int32_t chunk = lanes == 1 ? rules_.most_chunk_accesses : rules_.chunk_accesses;
    const std::int64_t of_block = std::int64_t{rules_.scan_threads} * lanes * chunk;
    if (loops_.stages.size() != 1 ||
        sym::hint(extent).value_or(0) < rules_.least_chunks * of_block ||
        sym::hint(all).value_or(4096) >= rules_.few_rows * device_.parallelism) {
      return false;
    }
    b.lanes = lanes;
    b.mapping = Rows{.team = rules_.scan_threads, .chunk = chunk};
    b.threads = rules_.scan_threads;
    return true;
  }

  // Rows too long for a block's registers. The second read hits in L2 if few rows are in flight, so
  // blocks are large (softmax of 512 rows of 131072: 108 us with blocks of 512 threads, 86 with
  // 1024). Sharing a row among the blocks of a cluster takes longer (109 to 197 us, with 2 to 8
  // blocks, kept; 90 to 99 read twice), and the row in shared memory, each next one fetched while
  // one is written, as long (89 us), so that is for where rows alone do not fill the device.
  void read_twice_or_share(BlockSchedule& b, std::int64_t accesses) const {
    auto& rows = std::get<Rows>(b.mapping);
    rows.team = b.threads = 1024;
    const std::int64_t count = sym::hint(extent_product(loops_.outer, context_)).value_or(4096);
    const std::int64_t part = 512 * rules_.most_kept_accesses;
    const std::int32_t cluster = power_above((accesses + part - 1) / part);
    if (count >= device_.parallelism || cluster > device_.cluster_blocks) return;
    if (facts_.handed_over() > 0) return;  // within one block
    rows.team = b.threads = 512;
    rows.cluster = cluster;
    rows.keep = true;
  }

  BlockSchedule columns() {
    BlockSchedule b;
    auto& columns = b.mapping.emplace<Columns>();
    const Dim& last = loops_.outer.back();
    const std::int64_t elements = extent_hint(loops_.outer);
    const std::int64_t length = sym::hint(facts_.longest()).value_or(4096);
    b.lanes = facts_.lanes_along(last.variable, last.extent, loops_.outer.size() == 1);
    if (scan_) {
      b.lanes = fill(b.lanes);
      b.threads = 128;
      columns.unroll = 4;
      return b;
    }
    b.threads = 256;
    const std::int64_t groups = sym::hint(last.extent).value_or(4096) / b.lanes;
    std::int32_t across = std::clamp(power_above(groups), 1, 32);
    // Few columns, as of the parts of sums: what takes long is the loop of each thread.
    const std::int64_t blocks = elements / (std::int64_t{across} * b.lanes);
    if (blocks < device_.parallelism / 4 && length >= rules_.long_column) {
      across = std::min(across, rules_.few_columns);
      b.threads = rules_.column_threads;
    }
    columns.team = std::min(b.threads / across, power_above(length / 4));
    if (columns.team * across < b.threads) b.threads = std::max(32, columns.team * across);
    if (columns.team < 1) columns.team = 1;
    columns.unroll = facts_.streams() > rules_.column_streams ? 2 : 4;
    return b;
  }

  Kernel& kernel_;
  LoopKernel& loops_;
  const abi::Target& device_;
  const abi::BlockRules& rules_;
  sym::Context& context_;
  LoopFacts facts_;
  bool has_inner_ = false;
  bool serial_ = false;
  bool scan_ = false;
};

}  // namespace

SequentialTeam sequential_team(std::int64_t columns, std::int64_t sums, std::int32_t lanes,
                               const abi::BlockRules& rules) {
  const auto elements = [&](std::int64_t team) {
    return (columns + lanes * team - 1) / (lanes * team) * lanes;
  };
  // Two tensors are kept, of elements of 16 / lanes bytes.
  const std::int64_t kept = 2 * elements(kWarp) * (kAccess / lanes) / 4;
  if (elements(kWarp) * sums + kept <= rules.sequential_of_warp)
    return {kWarp, rules.sequential_warps * kWarp};
  std::int32_t team = 2 * kWarp;
  const auto is_much = [&](std::int64_t threads) {
    return elements(threads) * sums > rules.sequential_sums ||
           elements(threads) > rules.sequential_elements;
  };
  while (team < rules.sequential_threads && is_much(team)) team *= 2;
  return {team, team};
}

Schedule choose_blocks(Kernel& kernel, const abi::Target& device, sym::Context& context) {
  Schedule schedule;
  const BlockSchedule wanted = Chooser(kernel, device, context).run();
  schedule.blocks = legal_blocks(kernel, wanted, device, context);
  return schedule;
}

}  // namespace inkle::schedule
