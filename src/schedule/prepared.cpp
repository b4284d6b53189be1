#include "schedule/prepared.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace inkle::schedule {
namespace {

using loop::BufferId;
using loop::Program;

// Larger results of steps without inputs are computed in every call: writing them costs little more
// than reading them, and keeping them costs memory.
constexpr std::int64_t kMostConstantBytes = std::int64_t{16} << 20;

bool is_constant(const std::vector<Expr>& list) {
  return std::all_of(list.begin(), list.end(), [](Expr e) { return e.is_constant(); });
}

bool has_constant_sizes(const Step& step, const Program& program) {
  const auto* kernel = std::get_if<KernelStep>(&step.action);
  if (kernel != nullptr && !is_constant(kernel->kernel.sizes)) return false;
  std::vector<BufferId> touched = reads(step);
  for (const BufferId b : writes(step)) touched.push_back(b);
  return std::all_of(touched.begin(), touched.end(), [&](BufferId b) {
    const loop::Buffer& buffer = program.buffers[b];
    return is_constant(buffer.sizes) && is_constant(*buffer.strides) &&
           (buffer.offset.is_null() || buffer.offset.is_constant());
  });
}

// Temporaries that one step writes and that are not visible outside of the steps.
std::vector<bool> private_results(const ScheduledProgram& scheduled) {
  const Program& program = scheduled.program;
  std::vector<int> writers(program.buffers.size(), 0);
  for (const Step& step : scheduled.steps) {
    for (const BufferId b : writes(step)) ++writers[b];
  }
  std::vector<bool> result(program.buffers.size());
  for (BufferId b = 0; b < result.size(); ++b) {
    const loop::Buffer& buffer = program.buffers[b];
    result[b] =
        buffer.role == loop::BufferRole::temporary && !buffer.writes_into && writers[b] == 1;
  }
  for (const loop::Buffer& buffer : program.buffers) {
    if (buffer.writes_into) result[*buffer.writes_into] = false;
  }
  for (const auto& output : program.outputs) {
    if (output.kind == loop::ProgramOutput::Kind::buffer) result[output.buffer] = false;
  }
  return result;
}

// Inputs whose elements do not change between calls, and literals.
std::vector<bool> stable_inputs(const ScheduledProgram& scheduled, bool training) {
  const Program& program = scheduled.program;
  std::vector<bool> result(program.buffers.size());
  for (BufferId b = 0; b < result.size(); ++b) {
    const loop::Buffer& buffer = program.buffers[b];
    result[b] = buffer.role == loop::BufferRole::constant || (buffer.is_parameter && !training);
  }
  for (const Step& step : scheduled.steps) {
    for (const BufferId b : writes(step)) result[b] = false;
  }
  for (const loop::Buffer& buffer : program.buffers) {
    if (buffer.writes_into) result[*buffer.writes_into] = false;
  }
  return result;
}

}  // namespace

void mark_prepared(ScheduledProgram& scheduled, bool training) {
  const Program& program = scheduled.program;
  std::vector<bool> stable = stable_inputs(scheduled, training);
  const std::vector<bool> is_private = private_results(scheduled);
  for (Step& step : scheduled.steps) {
    if (std::holds_alternative<EagerStep>(step.action) ||
        std::holds_alternative<AttentionStep>(step.action)) {
      continue;
    }
    const auto r = reads(step);
    const auto w = writes(step);
    const auto is_stable = [&](BufferId b) { return stable[b]; };
    if (!std::all_of(r.begin(), r.end(), is_stable) || !has_constant_sizes(step, program) ||
        !std::all_of(w.begin(), w.end(), [&](BufferId b) { return is_private[b]; })) {
      continue;
    }
    const auto bytes = step.bytes.constant();  // all that is touched, so: all that is written
    if (r.empty() && (!bytes || *bytes > kMostConstantBytes)) continue;
    step.prepare = true;
    for (const BufferId b : w) stable[b] = true;
  }
}

}  // namespace inkle::schedule
