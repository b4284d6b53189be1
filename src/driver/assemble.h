// Scheduled steps and their compiled kernels -> the plan that the runtime executes.
#pragma once

#include <span>
#include <vector>

#include "abi/plan.h"
#include "driver/target.h"
#include "schedule/scheduled.h"

namespace inkle::driver {

// One compiled kernel for each kernel step, in order; `number` is the same for equal kernels.
struct KernelChoice {
  std::uint32_t number = 0;  // index into `kernels` of assemble()
  sym::Expr scratch_bytes;   // in the step's own size symbols
};

struct UniqueKernel {
  std::string name;
  std::string text;
  TargetKernel compiled;
};

[[nodiscard]] abi::Plan assemble(const schedule::ScheduledProgram& scheduled,
                                 std::span<const KernelChoice> choices,
                                 std::span<const UniqueKernel> kernels, const Target& target);

}  // namespace inkle::driver
