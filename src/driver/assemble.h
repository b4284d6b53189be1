// Scheduled steps and their compiled kernels -> the plan that the runtime executes, with its code.
#pragma once

#include <span>
#include <vector>

#include "abi/code.h"
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
  std::string text;  // text_of() kernel and schedule
  TargetKernel compiled;
};

struct Assembled {
  abi::Plan plan;
  abi::Code code;
};

[[nodiscard]] Assembled assemble(const schedule::ScheduledProgram& scheduled,
                                 std::span<const KernelChoice> choices,
                                 std::span<const UniqueKernel> kernels, const Backend& target);

// A plan of the convolutions alone, to look ahead: it has no kernels, outputs or guards.
[[nodiscard]] abi::Plan plan_convolutions(const schedule::ScheduledProgram& scheduled,
                                          const Backend& target);

}  // namespace inkle::driver
