#include "driver/step_report.h"

#include <fmt/format.h>

#include <utility>
#include <variant>

namespace inkle::driver {

std::string kernels_text(const schedule::ScheduledProgram& scheduled) {
  std::string text;
  for (const schedule::Step& step : scheduled.steps) {
    text += fmt::format("# {}  {}\n", step.label, fmt::join(step.sources, ", "));
    if (const auto* k = std::get_if<schedule::KernelStep>(&step.action)) {
      text += schedule::to_string(k->kernel) + schedule::to_string(k->schedule) + "\n";
    }
  }
  return text;
}

void describe_steps(const schedule::ScheduledProgram& scheduled, const abi::Plan& plan,
                    Report& report) {
  report.bytes_moved = sym::hint(scheduled.bytes_moved).value_or(0);
  report.bytes_lower_bound = sym::hint(scheduled.bytes_lower_bound).value_or(0);
  for (std::size_t s = 0; s < scheduled.steps.size(); ++s) {
    const schedule::Step& step = scheduled.steps[s];
    StepReport r;
    r.label = step.label;
    r.source = fmt::format("{}", fmt::join(step.sources, ", "));
    if (std::holds_alternative<schedule::KernelStep>(step.action)) {
      r.kind = "kernel";
      r.kernel = plan.kernels[std::get<abi::Launch>(plan.steps[s].action).kernel].name;
      ++report.launches;
    } else if (std::holds_alternative<schedule::EagerStep>(step.action)) {
      r.kind = "eager";
      report.eager.push_back(step.label);
    } else {
      r.kind = std::holds_alternative<schedule::MatmulStep>(step.action)        ? "matmul"
               : std::holds_alternative<schedule::ConvolutionStep>(step.action) ? "convolution"
                                                                                : "attention";
      ++report.library_calls;
    }
    report.steps.push_back(std::move(r));
  }
}

}  // namespace inkle::driver
