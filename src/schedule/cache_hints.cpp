#include "schedule/cache_hints.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "schedule/bytes.h"

namespace inkle::schedule {
namespace {

using loop::BufferId;
using loop::Program;

std::optional<std::int64_t> bytes_of(const loop::Buffer& buffer) {
  std::int64_t bytes = abi::size_of(buffer.dtype);
  for (const Expr size : buffer.sizes) {
    const auto extent = sym::hint(size);
    if (!extent) return std::nullopt;
    bytes *= std::max<std::int64_t>(*extent, 1);
  }
  return bytes;
}

// The schedule of a kernel that has each element once, in the order of memory.
BlockSchedule* one_pass(Step& step) {
  auto* kernel = std::get_if<KernelStep>(&step.action);
  if (kernel == nullptr || !kernel->schedule.blocks || kernel->kernel.last_block) return nullptr;
  const auto* loops = std::get_if<LoopKernel>(&kernel->kernel.body);
  const bool plain = loops != nullptr && kernel->kernel.instances == 1 &&
                     kernel->schedule.blocks->is<BlockSchedule::Columns>() &&
                     std::all_of(loops->stages.begin(), loops->stages.end(), [](const Stage& s) {
                       return s.kind == StageKind::pointwise && s.inner.empty();
                     });
  return plain ? &*kernel->schedule.blocks : nullptr;
}

// The schedule of a kernel that reads rows once and keeps them on the chip.
BlockSchedule* kept_rows(Step& step) {
  auto* kernel = std::get_if<KernelStep>(&step.action);
  if (kernel == nullptr || !kernel->schedule.blocks || kernel->kernel.last_block) return nullptr;
  BlockSchedule& blocks = *kernel->schedule.blocks;
  const auto* loops = std::get_if<LoopKernel>(&kernel->kernel.body);
  const bool is_one = loops != nullptr && loops->sequential == 0 && kernel->kernel.instances == 1;
  const bool keeps = blocks.is<BlockSchedule::Rows>() && blocks.rows().keep;
  return is_one && keeps ? &blocks : nullptr;
}

// Whether the step reads at least `least` and at most `most` bytes in one of these buffers.
bool reads_one_of(const Step& step, const std::vector<BufferId>& buffers, const Program& program,
                  std::int64_t least, std::int64_t most) {
  const std::vector<BufferId> read = reads(step);
  return std::any_of(read.begin(), read.end(), [&](BufferId b) {
    const auto bytes = bytes_of(program.buffers[b]);
    const bool is_one = std::find(buffers.begin(), buffers.end(), b) != buffers.end();
    return is_one && bytes && *bytes >= least && *bytes <= most;
  });
}

// Whether one in `part` or more of the `bytes` that the step moves is written.
bool writes_much(const Step& step, const Program& program, std::int64_t bytes, std::int64_t part) {
  std::int64_t written = 0;
  for (const Traffic& t : traffic(step, program)) written += sym::hint(t.written).value_or(0);
  return written * part >= bytes;
}

}  // namespace

void set_cache_hints(std::vector<Step>& steps, const Program& program, const abi::Target& device) {
  const std::int64_t cache = device.l2_bytes;
  const abi::CacheRules& rules = device.caches;
  std::vector<BufferId> written;  // by the step before
  for (Step& step : steps) {
    if (step.prepare) continue;
    if (BlockSchedule* const blocks = one_pass(step)) {
      blocks->recent =
          reads_one_of(step, written, program, cache / rules.least_part, cache * rules.most_caches);
    } else if (BlockSchedule* const rows = kept_rows(step)) {
      const std::int64_t bytes = sym::hint(step.bytes).value_or(0);
      const bool is_new =
          reads_one_of(step, written, program, 1, std::numeric_limits<std::int64_t>::max());
      rows->lasting = bytes > (is_new ? 2 * cache : cache) &&
                      writes_much(step, program, bytes, rules.written_part);
    }
    written = writes(step);
  }
}

}  // namespace inkle::schedule
