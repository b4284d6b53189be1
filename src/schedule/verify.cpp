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

// How many elements of its memory a buffer has; null where that is not a number.
Expr elements_of(const Buffer& buffer) {
  Expr elements;
  for (std::size_t d = 0; d < buffer.sizes.size(); ++d) {
    if (buffer.strides && (*buffer.strides)[d].is_constant(0)) continue;
    elements = elements.is_null() ? buffer.sizes[d] : elements * buffer.sizes[d];
  }
  return !elements.is_null() && elements.is_constant() ? elements : Expr();
}

// At how many elements of each buffer kernels store, at most: of loops whose extents are numbers.
class StoreCounts {
 public:
  explicit StoreCounts(std::size_t buffers) : points_(buffers, 0), unknown_(buffers, false) {}

  void add(const Step& step) {
    const auto* kernel = std::get_if<KernelStep>(&step.action);
    if (kernel == nullptr || !std::holds_alternative<LoopKernel>(kernel->kernel.body) ||
        kernel->kernel.instances != 1) {
      for (const BufferId b : writes(step)) unknown_[b] = true;
      return;
    }
    for_each_loops(kernel->kernel, [&](const LoopKernel& loops) {
      for (const Stage& stage : loops.stages) add(stage, loops, kernel->buffers);
    });
  }

  // Some element has no store.
  [[nodiscard]] bool misses(const Buffer& buffer, BufferId b) const {
    if (unknown_[b]) return false;
    const Expr elements = elements_of(buffer);
    return !elements.is_null() && points_[b] < *elements.constant();
  }

 private:
  void add(const Stage& stage, const LoopKernel& loops, std::span<const BufferId> params) {
    for (const StageStore& store : stage.stores) {
      if (store.target >= params.size()) continue;  // scratch
      const BufferId b = params[store.target];
      const std::optional<std::int64_t> points = points_of(store.offset, loops, stage);
      if (points) points_[b] += *points;
      unknown_[b] = unknown_[b] || !points;
    }
  }

  static std::optional<std::int64_t> points_of(Expr offset, const LoopKernel& loops,
                                               const Stage& stage) {
    std::int64_t points = 1;
    for (const std::vector<Dim>* dims : {&loops.outer, &stage.inner}) {
      for (const Dim& dim : *dims) {
        if (!sym::contains(offset, dim.variable)) continue;
        if (!dim.extent.is_constant()) return std::nullopt;
        points *= *dim.extent.constant();
      }
    }
    for (const loop::Instruction& i : stage.body.instructions) {
      if (i.opcode == loop::Opcode::indirect && sym::contains(offset, i.indices.front()))
        return std::nullopt;
    }
    return points;
  }

  std::vector<std::int64_t> points_;
  std::vector<bool> unknown_;
};

}  // namespace

void verify(const ScheduledProgram& scheduled) {
  const std::vector<Buffer>& buffers = scheduled.program.buffers;
  std::vector<bool> holds, holds_early;
  StoreCounts stores(buffers.size());
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
    stores.add(step);
    for (const BufferId b : writes(step)) {
      holds[b] = true;
      if (step.prepare) holds_early[b] = true;
    }
  }
  for (const loop::ProgramOutput& output : scheduled.program.outputs) {
    if (output.kind != loop::ProgramOutput::Kind::buffer || holds[output.buffer]) continue;
    throw InternalError(fmt::format("nothing writes the output {}", buffers[output.buffer].name));
  }
  for (BufferId b = 0; b < buffers.size(); ++b) {
    if (!holds[b] || is_given(buffers[b]) || !stores.misses(buffers[b], b)) continue;
    throw InternalError(fmt::format("some elements of {} are never written", buffers[b].name));
  }
}

}  // namespace inkle::schedule
