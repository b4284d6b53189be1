// Schedules that a rewrite could have spoilt.
#include "abi/targets.h"
#include "schedule/verify.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "graph/text.h"
#include "lower/lower.h"
#include "ops/table.h"
#include "schedule/schedule.h"

namespace inkle::schedule {
namespace {

constexpr const char* kText = R"(
graph @f(%x: f32[16,32], %w: f32[32,32] param, %v: f32[32] param) -> f32[16,32], f32[16] {
  %0: f32[32,32] = mul(%w, %v)
  %1: f32[16,32] = mm(%x, %0)
  %2: f32[16,32] = _softmax(%1, 1, false)
  %3: f32[16] = sum_dim(%1, [1], false, none)
  return %2, %3
}
)";

ScheduledProgram scheduled() {
  Options options;
  options.target = *abi::target_named("x86-64-v4");
  return schedule(lower::lower(graph::parse(kText, "f", ops::op_table())), options);
}

std::string fault_of(const ScheduledProgram& program) {
  try {
    verify(program);
  } catch (const InternalError& error) {
    return error.what();
  }
  return "";
}

std::size_t matmul_of(const ScheduledProgram& program) {
  const auto at = std::ranges::find_if(program.steps, [](const Step& step) {
    return std::holds_alternative<MatmulStep>(step.action);
  });
  return static_cast<std::size_t>(at - program.steps.begin());
}

TEST(VerifySchedule, WhatSchedulingMakesIsRight) { EXPECT_EQ(fault_of(scheduled()), ""); }

TEST(VerifySchedule, AStepThatReadsNothingIsNamed) {
  ScheduledProgram program = scheduled();
  program.steps.erase(program.steps.begin() + static_cast<std::ptrdiff_t>(matmul_of(program)));
  EXPECT_NE(fault_of(program).find("which nothing was written to"), std::string::npos);
}

TEST(VerifySchedule, AStepIsNoEarlierThanWhatItReads) {
  ScheduledProgram program = scheduled();
  ASSERT_GT(program.steps.size(), 1U);
  std::ranges::reverse(program.steps);
  EXPECT_NE(fault_of(program).find("which nothing was written to"), std::string::npos);
}

TEST(VerifySchedule, PreparationReadsParametersAlone) {
  ScheduledProgram program = scheduled();
  program.steps[matmul_of(program)].prepare = true;
  EXPECT_NE(fault_of(program).find("reads x, which nothing was written to"), std::string::npos);
}

TEST(VerifySchedule, EveryOutputIsWritten) {
  ScheduledProgram program = scheduled();
  program.steps.pop_back();
  EXPECT_NE(fault_of(program).find("nothing writes the output"), std::string::npos);
}

TEST(VerifySchedule, EveryElementOfAnOutputIsWritten) {
  ScheduledProgram program = scheduled();
  for (Step& step : program.steps) {
    auto* kernel = std::get_if<KernelStep>(&step.action);
    if (kernel == nullptr) continue;
    auto& loops = std::get<LoopKernel>(kernel->kernel.body);
    ASSERT_FALSE(loops.outer.empty());
    const std::vector<std::pair<Expr, Expr>> first = {
        {loops.outer.front().variable, program.program.context->constant(0)}};
    for (Stage& stage : loops.stages) {
      for (StageStore& store : stage.stores) {
        store.offset = sym::substitute(store.offset, first);
      }
    }
  }
  EXPECT_NE(fault_of(program).find("are never written"), std::string::npos);
}

}  // namespace
}  // namespace inkle::schedule
