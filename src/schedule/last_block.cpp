#include "schedule/last_block.h"

#include <algorithm>
#include <optional>

#include "base/log.h"
#include "schedule/linear.h"
#include "schedule/stages.h"

namespace inkle::schedule {
namespace {

using loop::BufferId;
using loop::Opcode;
using loop::Program;
using Columns = BlockSchedule::Columns;
using Rows = BlockSchedule::Rows;
using Tile = BlockSchedule::Tile;

constexpr std::size_t kMostParts = 8;
constexpr std::size_t kMostParams = 64;
// A partial result of a thread: a sum of at most 4 bytes, or at most a mean and a sum of squares in
// f64, or a value and its index.
constexpr std::int64_t kPlainPart = 4;
constexpr std::int64_t kLargestPart = 24;

bool all_stages(const LoopKernel& loops, bool (*holds)(const Stage&)) {
  return std::all_of(loops.stages.begin(), loops.stages.end(), holds);
}

bool is_simple(const Stage& stage) {
  const bool stores = std::all_of(stage.stores.begin(), stage.stores.end(), [](const auto& s) {
    return s.mode == loop::StoreMode::overwrite;
  });
  return stores && (stage.kind == StageKind::pointwise || stage.kind == StageKind::reduction);
}

std::int64_t high(Expr e) { return sym::bounds(e).high; }

// Points of all stages, or nothing if they may be more than `most`.
bool is_small(const LoopKernel& loops, std::int64_t most) {
  std::int64_t points = 0;
  for (const Stage& stage : loops.stages) {
    std::int64_t all = 1;
    for (const std::vector<Dim>* dims : {&loops.outer, &stage.inner}) {
      for (const Dim& dim : *dims) {
        const std::int64_t extent = std::max<std::int64_t>(high(dim.extent), 1);
        if (extent > most || all > most) return false;
        all *= extent;
      }
    }
    points += all;
    if (points > most) return false;
  }
  return true;
}

Expr rows_of(const LoopKernel& loops, sym::Context& context) {
  Expr rows = context.constant(1);
  for (const Dim& dim : loops.outer) rows = rows * dim.extent;
  return rows;
}

// Whether threads that share values reach the end of the stages together, or not at all. A warp of
// several rows, some past the last row, does not: the threads of those rows would go on to the last
// block's part while the others still wait for the whole warp.
bool stays_together(const LoopKernel& loops, const BlockSchedule& blocks, sym::Context& context) {
  constexpr std::int32_t kWarp = 32;
  if (blocks.is<Tile>()) return false;
  const std::int32_t team = blocks.team();
  if (blocks.is<Columns>() || team == 1 || team >= kWarp) return true;
  return sym::divides(kWarp / team, rows_of(loops, context));
}

bool finishes(const LoopKernel& loops) {
  return std::any_of(loops.stages.begin(), loops.stages.end(), [](const Stage& stage) {
    return stage.kind == StageKind::reduction && !stage.inner.empty();
  });
}

class LastBlockFuser {
 public:
  LastBlockFuser(std::vector<Step>& steps, const Program& program, const abi::SplitRules& rules)
      : steps_(steps), program_(program), rules_(rules), gone_(steps.size(), false) {}

  void run() {
    for (std::size_t s = 1; s < steps_.size(); ++s) {
      const auto before = can_end(steps_[s]) ? earlier(s) : std::nullopt;
      if (before && join(*before, s)) gone_[s] = true;
    }
    std::vector<Step> left;
    for (std::size_t s = 0; s < steps_.size(); ++s) {
      if (!gone_[s]) left.push_back(std::move(steps_[s]));
    }
    steps_ = std::move(left);
  }

 private:
  static const KernelStep* plain_kernel(const Step& step) {
    const auto* kernel = std::get_if<KernelStep>(&step.action);
    const bool is_plain = kernel != nullptr && kernel->kernel.instances == 1 &&
                          std::holds_alternative<LoopKernel>(kernel->kernel.body) &&
                          kernel->schedule.blocks && !step.prepare;
    return is_plain ? kernel : nullptr;
  }

  static const LoopKernel& loops_of(const KernelStep& step) {
    return std::get<LoopKernel>(step.kernel.body);
  }

  static bool can_end(const Step& step) {
    const KernelStep* kernel = plain_kernel(step);
    if (kernel == nullptr || kernel->kernel.last_block) return false;
    return !kernel->schedule.blocks->is<Tile>() && loops_of(*kernel).scratch.empty() &&
           loops_of(*kernel).sequential == 0 && all_stages(loops_of(*kernel), is_simple);
  }

  BufferId storage(BufferId b) const { return program_.buffers[b].writes_into.value_or(b); }

  bool meet(const std::vector<BufferId>& a, const std::vector<BufferId>& b) const {
    return std::any_of(a.begin(), a.end(), [&](BufferId x) {
      return std::any_of(b.begin(), b.end(), [&](BufferId y) { return storage(x) == storage(y); });
    });
  }

  // Whether step `b` must run after step `a`.
  bool waits(const Step& a, const Step& b) const {
    const auto written = writes(a);
    const auto made = writes(b);
    return meet(written, reads(b)) || meet(written, made) || meet(reads(a), made);
  }

  // The step that s depends on and may be fused into: no other dependency of s lies between them.
  std::optional<std::size_t> earlier(std::size_t s) const {
    for (std::size_t before = s; before-- > 0;) {
      if (gone_[before]) continue;
      // A call to eager may have effects that its buffers do not show.
      if (std::holds_alternative<EagerStep>(steps_[before].action)) return std::nullopt;
      if (waits(steps_[before], steps_[s])) return before;
    }
    return std::nullopt;
  }

  bool join(std::size_t before, std::size_t s) {
    const KernelStep* first = plain_kernel(steps_[before]);
    if (first == nullptr || first->schedule.blocks->cluster() > 1) return false;
    const LoopKernel& loops = loops_of(*first);
    if (loops.sequential != 0 || !all_stages(loops, is_simple)) return false;
    // An empty grid has no last block.
    const bool has_blocks = std::all_of(loops.outer.begin(), loops.outer.end(), [](const Dim& dim) {
      return sym::bounds(dim.extent).low >= 1;
    });
    const auto& last = std::get<KernelStep>(steps_[s].action);
    if (!has_blocks || !reads_as_written(*first, last)) return false;
    const bool has_last_block = first->kernel.last_block.has_value();
    if (!stays_together(loops, *first->schedule.blocks, *program_.context)) return false;
    if (!stays_together(loops_of(last), *last.schedule.blocks, *program_.context)) {
      // Allowed if it is all that the last block does and every row has threads of its own.
      const auto rows = rows_of(loops_of(last), *program_.context).constant();
      if (has_last_block || !rows) return false;
      if (*rows * last.schedule.blocks->team() > first->schedule.blocks->threads) return false;
    }
    if (has_last_block &&
        !std::ranges::all_of(first->kernel.last_block->parts, [&](const auto& part) {
          return stays_together(part.loops, part.blocks, *program_.context);
        })) {
      return false;
    }
    if (has_last_block && first->kernel.last_block->parts.size() == kMostParts) return false;
    const bool alone =
        is_small(loops_of(last), rules_.last_block_points * first->schedule.blocks->threads) &&
        (finishes(loops_of(last)) || is_small(loops_of(last), rules_.last_block_numbers));
    const bool strips = !alone && ends_by_strips(steps_[before], steps_[s]);
    if (!alone && !strips) return false;
    if (has_last_block && first->kernel.last_block->by_strips != strips) return false;
    if (alone && !fits_alone(*first->schedule.blocks, last)) return false;
    if (first->buffers.size() + last.buffers.size() > kMostParams) return false;
    log(LogChannel::fusion, "the last block of {} runs {}{}", steps_[before].label, steps_[s].label,
        strips ? " by strips" : "");
    append(steps_[before], steps_[s], strips);
    return true;
  }

  // The second kernel reads results of the first through the same buffer, not through another view
  // of its memory.
  bool reads_as_written(const KernelStep& first, const KernelStep& last) const {
    for (std::size_t p = 0; p < first.buffers.size(); ++p) {
      if (first.param(p).role == ParamRole::in) continue;
      for (const BufferId b : last.buffers) {
        if (b != first.buffers[p] && storage(b) == storage(first.buffers[p])) return false;
      }
    }
    return true;
  }

  // Whether the reductions fit the shared memory of one block.
  bool fits_alone(const BlockSchedule& first, const KernelStep& last) const {
    const BlockSchedule& blocks = *last.schedule.blocks;
    if (blocks.is<Rows>() || blocks.team() == 1) return true;
    const std::int64_t part = has_large_parts(loops_of(last)) ? kLargestPart : kPlainPart;
    return std::int64_t{first.threads} * blocks.lanes * part <= rules_.last_block_shared;
  }

  // --- Strips of columns ----------------------------------------------------------------------

  bool ends_by_strips(const Step& before, const Step& after) const {
    const auto& first = std::get<KernelStep>(before.action);
    const auto& last = std::get<KernelStep>(after.action);
    const LoopKernel& loops = loops_of(first);
    const LoopKernel& last_block = loops_of(last);
    const BlockSchedule& blocks = *first.schedule.blocks;
    if (!blocks.is<Columns>() || blocks.team() == 1 || !last.schedule.blocks->is<Columns>()) {
      return false;
    }
    if (last_block.outer.size() != 1 || !last_block.outer.front().extent.is_constant())
      return false;
    const Expr columns = last_block.outer.front().extent;
    if (!(loops.outer.back().extent == columns)) return false;
    for (const Stage& stage : last_block.stages) {
      std::int64_t rows = 1;
      for (const Dim& dim : stage.inner) {
        rows = std::max(rows, std::min(high(dim.extent), rules_.last_block_rows + 1) * rows);
      }
      if (rows > rules_.last_block_rows) return false;
    }
    if (std::int64_t{blocks.threads} * blocks.lanes * kLargestPart > rules_.last_block_shared &&
        has_large_parts(last_block)) {
      return false;
    }
    // Blocks of other strips may still access what this strip's last block writes.
    std::vector<BufferId> used = reads(before);
    for (const BufferId b : writes(before)) used.push_back(b);
    if (meet(used, writes(after))) return false;
    return of_own_columns(first, last, *columns.constant());
  }

  static bool has_large_parts(const LoopKernel& loops) {
    return std::any_of(loops.stages.begin(), loops.stages.end(), [](const Stage& stage) {
      const bool plain = stage.reduce == loop::ReduceOp::sum ||
                         stage.reduce == loop::ReduceOp::prod ||
                         stage.reduce == loop::ReduceOp::min || stage.reduce == loop::ReduceOp::max;
      return stage.kind == StageKind::reduction && !(plain && abi::size_of(stage.accumulator) <= 4);
    });
  }

  // Both kernels access a column of a shared buffer at that column of a row-major matrix with
  // `columns` columns.
  static bool of_own_columns(const KernelStep& first, const KernelStep& last,
                             std::int64_t columns) {
    const auto is_own = [&](Expr offset, Expr column) {
      const auto stride = sym::stride(offset, column);
      return stride && stride->is_constant(1) && sym::divides(columns, offset - column);
    };
    const LoopKernel& loops = loops_of(first);
    const LoopKernel& last_block = loops_of(last);
    const auto is_shared = [&](BufferId b) {
      for (std::size_t p = 0; p < first.buffers.size(); ++p) {
        if (first.buffers[p] == b && first.param(p).role != ParamRole::in) return true;
      }
      return false;
    };
    const auto is_read = [&](BufferId b) {
      return std::find(last.buffers.begin(), last.buffers.end(), b) != last.buffers.end();
    };
    for (const Stage& stage : last_block.stages) {
      for (const loop::Instruction& i : stage.body.instructions) {
        if (i.opcode != Opcode::load || !is_shared(last.buffers[i.buffer])) continue;
        if (!is_own(i.indices[0], last_block.outer.back().variable)) return false;
      }
    }
    for (const Stage& stage : loops.stages) {
      for (const StageStore& store : stage.stores) {
        if (store.target >= first.buffers.size() || !is_read(first.buffers[store.target])) continue;
        if (!is_own(store.offset, loops.outer.back().variable)) return false;
      }
    }
    return true;
  }

  // --- One step of two ------------------------------------------------------------------------

  void append(Step& before, Step& after, bool strips) {
    auto& first = std::get<KernelStep>(before.action);
    auto& last = std::get<KernelStep>(after.action);
    const bool reads_results = meet(writes(before), reads(after));
    const std::vector<BufferId> reads_before = reads(before);
    const std::vector<std::uint32_t> number = add_parameters(first, last);
    const bool is_first = !first.kernel.last_block;
    if (is_first) first.kernel.last_block = LastBlock{.after_reads = true};
    first.kernel.last_block->by_strips = strips;
    if (reads_results) first.kernel.last_block->after_reads = false;
    // A published cell does not order the reads of its block before writes of the last block.
    const bool overwrites = meet(reads_before, writes(after));
    publish_cells(first, last, reads_results && !strips && is_first && !overwrites);
    LoopKernel loops = std::move(std::get<LoopKernel>(last.kernel.body));
    for_each_memory(loops, [&](std::uint32_t& b) { b = number[b]; });
    first.kernel.last_block->parts.push_back({std::move(loops), *last.schedule.blocks});
    collect_sizes(first.kernel, *program_.context);
    before.label += "+" + after.label;
    add_missing(before.sources, after.sources);
    add_missing(before.checked, after.checked);
    first.kernel.sources = before.sources;
    if (!before.flops.is_null() && !after.flops.is_null()) {
      before.flops = before.flops + after.flops;
    }
  }

  // Results go through cells if each block has one row and the last block reads nothing else of it.
  void publish_cells(KernelStep& first, const KernelStep& last, bool may) const {
    first.kernel.last_block->cells.clear();
    const LoopKernel& loops = loops_of(first);
    const BlockSchedule& blocks = *first.schedule.blocks;
    const bool has_rows = blocks.is<Rows>() && blocks.rows().team > 32 &&
                          blocks.rows().chunk == 0 && loops.outer.size() == 1;
    if (!may || !has_rows || !(high(loops.outer.front().extent) <= rules_.last_block_cells)) return;
    std::vector<std::uint32_t> cells;
    for (const Stage& stage : loops.stages) {
      for (const StageStore& store : stage.stores) {
        if (store.target >= first.buffers.size()) return;
        const bool fits = stage.inner.empty() && store.offset == loops.outer.front().variable &&
                          abi::size_of(first.kernel.params[store.target].dtype) == 4 &&
                          std::find(cells.begin(), cells.end(), store.target) == cells.end();
        if (!fits) return;
        cells.push_back(store.target);
      }
    }
    for (const BufferId b : last.buffers) {
      const auto at = std::find(first.buffers.begin(), first.buffers.end(), b);
      const auto number = static_cast<std::uint32_t>(at - first.buffers.begin());
      const bool is_cell = std::find(cells.begin(), cells.end(), number) != cells.end();
      if (!is_cell && first.kernel.params[number].role != ParamRole::in && !is_own(last, b)) return;
    }
    first.kernel.last_block->cells = std::move(cells);
  }

  static bool is_own(const KernelStep& last, BufferId b) {
    for (std::size_t p = 0; p < last.buffers.size(); ++p) {
      if (last.buffers[p] == b) return last.param(p).role == ParamRole::out;
    }
    return false;
  }

  std::vector<Step>& steps_;
  const Program& program_;
  const abi::SplitRules& rules_;
  std::vector<bool> gone_;
};

}  // namespace

void fuse_last_blocks(std::vector<Step>& steps, const Program& program, const abi::Target& device) {
  LastBlockFuser(steps, program, device.split).run();
}

}  // namespace inkle::schedule
