#include "schedule/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/error.h"

namespace inkle::schedule {
namespace {

using loop::Buffer;
using loop::BufferId;
using loop::BufferRole;

// Whether the buffer is initialised before any step runs, or has no elements.
bool is_given(const Buffer& buffer) {
  return buffer.role == BufferRole::input || buffer.role == BufferRole::constant ||
         buffer.writes_into.has_value() ||
         std::ranges::any_of(buffer.sizes, [](Expr s) { return s.is_constant(0); });
}

// Whether it is initialised before the first call: parameters and constants.
bool is_given_early(const Buffer& buffer) {
  return is_given(buffer) && (buffer.role != BufferRole::input || buffer.is_parameter);
}

// Buffers that earlier steps must have written. A kernel may write what it also reads itself.
std::vector<BufferId> needs(const Step& step) {
  const auto* kernel = std::get_if<KernelStep>(&step.action);
  if (kernel == nullptr) return reads(step);
  std::vector<BufferId> result;
  for (std::size_t p = 0; p < kernel->buffers.size(); ++p) {
    if (kernel->param(p).role == ParamRole::in) result.push_back(kernel->buffers[p]);
  }
  return result;
}

}  // namespace

void verify(const ScheduledProgram& scheduled) {
  const std::vector<Buffer>& buffers = scheduled.program.buffers;
  std::vector<bool> holds, holds_early;
  for (const Buffer& b : buffers) {
    holds.push_back(is_given(b));
    holds_early.push_back(is_given_early(b));
  }
  for (std::size_t s = 0; s < scheduled.steps.size(); ++s) {
    const Step& step = scheduled.steps[s];
    for (const BufferId b : needs(step)) {
      if (step.prepare ? holds_early[b] : holds[b]) continue;
      throw InternalError(fmt::format("step {} ({}) reads {}, which nothing was written to", s,
                                      step.label, buffers[b].name));
    }
    for (const BufferId b : writes(step)) {
      holds[b] = true;
      if (step.prepare) holds_early[b] = true;
    }
  }
  for (const loop::ProgramOutput& output : scheduled.program.outputs) {
    if (output.kind != loop::ProgramOutput::Kind::buffer || holds[output.buffer]) continue;
    throw InternalError(fmt::format("nothing writes the output {}", buffers[output.buffer].name));
  }
}

}  // namespace inkle::schedule
