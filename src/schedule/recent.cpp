#include "schedule/recent.h"

#include <algorithm>
#include <optional>

namespace inkle::schedule {
namespace {

using loop::BufferId;
using loop::Program;

// What is smaller than this part of the cache is still there as a whole, what is larger than so
// many caches gains little.
constexpr std::int64_t kLeastPart = 3;
constexpr std::int64_t kMostCaches = 8;

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
  if (kernel == nullptr || !kernel->schedule.blocks || kernel->kernel.ending) return nullptr;
  const auto* loops = std::get_if<LoopKernel>(&kernel->kernel.body);
  const bool plain = loops != nullptr && kernel->kernel.instances == 1 &&
                     kernel->schedule.blocks->axis == BlockSchedule::Axis::outer &&
                     std::all_of(loops->stages.begin(), loops->stages.end(), [](const Stage& s) {
                       return s.kind == StageKind::pointwise && s.inner.empty();
                     });
  return plain ? &*kernel->schedule.blocks : nullptr;
}

}  // namespace

void find_recent(std::vector<Step>& steps, const Program& program,
                 const abi::DeviceDescription& device) {
  const Step* before = nullptr;
  for (Step& step : steps) {
    if (step.prepare) continue;
    BlockSchedule* const blocks = before != nullptr ? one_pass(step) : nullptr;
    if (blocks != nullptr) {
      const std::vector<BufferId> written = writes(*before);
      for (const BufferId b : reads(step)) {
        const auto bytes = bytes_of(program.buffers[b]);
        const bool is_new = std::find(written.begin(), written.end(), b) != written.end();
        if (is_new && bytes && *bytes >= device.l2_bytes / kLeastPart &&
            *bytes <= device.l2_bytes * kMostCaches) {
          blocks->recent = true;
        }
      }
    }
    before = &step;
  }
}

}  // namespace inkle::schedule
