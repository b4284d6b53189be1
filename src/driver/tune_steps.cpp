// The stage of tuning: the steps of a program that are worth measuring, each text once.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "driver/kernel_names.h"
#include "driver/pipeline.h"

namespace inkle::driver {

namespace {

// Smaller kernels take as long as their launch, whatever their schedule.
constexpr std::int64_t kLeastTunedBytes = 1 << 20;

// What a step works on; nothing if it is not worth measuring, or some size has no hint.
std::optional<TuneCase> tune_case(const schedule::Step& step,
                                  const schedule::ScheduledProgram& scheduled) {
  const auto* k = std::get_if<schedule::KernelStep>(&step.action);
  if (k == nullptr || step.prepare || k->kernel.instances > 1 || !k->kernel.beside.empty() ||
      !k->schedule.blocks || k->schedule.gemm) {
    return {};
  }
  TuneCase result{{&k->kernel, k->schedule, {}}, {}, {}};
  std::int64_t all = 0;
  for (const loop::BufferId b : k->buffers) {
    const loop::Buffer& buffer = scheduled.program.buffers[b];
    std::int64_t elements = 1;
    for (std::size_t d = 0; d < buffer.sizes.size(); ++d) {
      const auto size = sym::hint(buffer.sizes[d]);
      const auto stride = sym::hint((*buffer.strides)[d]);
      if (!size || !stride || *size < 1 || *stride < 0) return {};
      elements += (*size - 1) * *stride;
    }
    if (!buffer.offset.is_null()) elements += sym::hint(buffer.offset).value_or(0);
    result.bytes.push_back(elements * abi::size_of(buffer.dtype));
    all += result.bytes.back();
  }
  for (const sym::Expr size : k->kernel.sizes) {
    const auto value = sym::hint(size);
    if (!value) return {};
    result.sizes.push_back(*value);
  }
  if (all < kLeastTunedBytes) return {};
  return result;
}

}  // namespace

void Compiler::tune(schedule::ScheduledProgram& scheduled) {
  const std::lock_guard lock(mutex_);
  KernelNames names;
  std::vector<TuneCase> cases;
  std::vector<std::string> keys;                                    // of the cases
  std::vector<std::pair<schedule::Schedule*, std::string>> wanted;  // of all steps
  for (schedule::Step& step : scheduled.steps) {
    auto found = tune_case(step, scheduled);
    if (!found) continue;
    auto& kernel = std::get<schedule::KernelStep>(step.action);
    std::string key = fmt::format("{}{} {} {}", schedule::to_string(kernel.kernel),
                                  schedule::to_string(kernel.schedule),
                                  fmt::join(found->bytes, ","), fmt::join(found->sizes, ","));
    wanted.emplace_back(&kernel.schedule, key);
    if (tuned_.contains(key) || std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
    found->label = step.label;
    found->unit.name =
        names.name(kernel.kernel, step.label, text_of(kernel.kernel, kernel.schedule));
    cases.push_back(std::move(*found));
    keys.push_back(std::move(key));
  }
  if (!cases.empty()) {
    const std::vector<schedule::Schedule> best = target_->tune(cases);
    for (std::size_t n = 0; n < best.size(); ++n) tuned_.emplace(keys[n], best[n]);
  }
  for (auto& [schedule, key] : wanted) *schedule = tuned_.at(key);
}

}  // namespace inkle::driver
