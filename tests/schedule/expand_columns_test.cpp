// Columns of a GPU's schedules as kernel IR: verified, and run by the interpreter with all blocks
// and threads under several interleavings, against the loop kernel itself.
#include <gtest/gtest.h>

#include "kernel/interpret.h"
#include "kernel/passes.h"
#include "kernel/verify.h"
#include "schedule/expand.h"
#include "schedule/gpu_programs.h"

namespace inkle::schedule::testing {
namespace {

// A batch norm and what it is added to, and of that every other row and column of an image, which a
// matrix product reads: threads read what others of their team have stored.
constexpr const char* kOtherRows = R"(graph @g(
    %x: f32[2,16,128]{2048,1,16}, %y: f32[32,128], %w: f32[128,64])
    -> f32[2,16,128]{2048,1,16}, f32[8,64] {
  %0: f32[128], %1: f32[128] = var_mean(%y, [0], 0.0)
  %2: f32[128] = rsqrt(%0)
  %3: f32[32,128] = sub(%y, %1)
  %4: f32[32,128] = mul(%3, %2)
  %5: f32[2,16,128] = view(%4, [2, 16, 128])
  %6: f32[2,16,128]{2048,1,16} = add(%x, %5)
  %7: f32[2,4,4,128]{2048,4,1,16} = view(%6, [2, 4, 4, 128])
  %8: f32[2,2,4,128]{2048,8,1,16} = slice(%7, 1, 0, 9223372036854775807, 2)
  %9: f32[2,2,2,128]{2048,8,2,16} = slice(%8, 2, 0, 9223372036854775807, 2)
  %10: f32[8,128] = reshape(%9, [8, 128])
  %11: f32[8,64] = mm(%10, %w)
  return %6, %11
})";

BlockSchedule columns(std::int32_t threads, std::int32_t team, std::int32_t lanes) {
  BlockSchedule b;
  b.mapping = BlockSchedule::Columns{.team = team};
  b.threads = threads;
  b.lanes = lanes;
  return b;
}

class OtherRows : public ::testing::TestWithParam<BlockSchedule> {};

TEST_P(OtherRows, AreThereWhenTheyAreRead) {
  const ScheduledProgram scheduled = scheduled_on_gpu(kOtherRows, "other rows", 8);
  auto step = std::get<KernelStep>(scheduled.steps.front().action);
  for (Param& p : step.kernel.params) p.alignment = 16;
  ASSERT_EQ(step.kernel.params.size(), 4U) << to_string(scheduled);
  step.schedule.blocks = GetParam();
  const std::vector<Array> arrays = arrays_of(step, scheduled.program);
  std::vector<Array> expected = arrays;
  ASSERT_EQ(interpret(step.kernel, expected, {}), 0);
  kernel::Kernel made = expand(step.kernel, step.schedule, *scheduled.program.context);
  kernel::run_passes(made, *scheduled.program.context, kernel::gpu_passes(), {.verify_each = true});
  expect_run(made, arrays, expected, {}, kernel::Writes::any, 1e-5, "lowered");
  if (::testing::Test::HasFailure()) ADD_FAILURE() << kernel::to_string(made);
}

INSTANTIATE_TEST_SUITE_P(Schedules, OtherRows,
                         ::testing::Values(columns(64, 1, 1), columns(64, 1, 4), columns(64, 8, 1),
                                           columns(256, 8, 4), columns(64, 4, 2),
                                           columns(256, 32, 4)));

}  // namespace
}  // namespace inkle::schedule::testing
