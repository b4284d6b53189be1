#include "driver/check_devices.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <variant>
#include <vector>

#include "base/unsupported.h"

namespace inkle::driver {

void check_devices(const schedule::ScheduledProgram& scheduled, const abi::Device& device) {
  if (device.kind == abi::DeviceKind::cpu) return;
  const auto is_elsewhere = [&](loop::BufferId b) {
    return scheduled.program.buffers[b].device.kind != device.kind;
  };
  std::vector<std::string> labels, sources;
  for (const schedule::Step& step : scheduled.steps) {
    if (std::holds_alternative<schedule::EagerStep>(step.action)) continue;
    const auto writes = schedule::writes(step);
    if (std::none_of(writes.begin(), writes.end(), is_elsewhere)) continue;
    labels.push_back(step.label);
    const auto* kernel = std::get_if<schedule::KernelStep>(&step.action);
    const auto& nodes = kernel != nullptr ? kernel->kernel.sources : step.sources;
    sources.insert(sources.end(), nodes.begin(), nodes.end());
  }
  if (labels.empty()) return;
  unsupported_at(sources, "{} makes a CPU tensor in a CUDA program: {}", fmt::join(labels, ", "),
                 fmt::join(sources, ", "));
}

}  // namespace inkle::driver
