// Kernels side by side in one launch as kernel IR: verified, and run by the interpreter with all
// blocks and threads under several interleavings, against their loops one after the other.
#include <gtest/gtest.h>

#include "kernel/interpret.h"
#include "kernel/parse.h"
#include "kernel/passes.h"
#include "kernel/verify.h"
#include "schedule/expand.h"
#include "schedule/gpu_programs.h"

namespace inkle::schedule::testing {
namespace {

struct Case {
  const char* name;
  std::size_t kernels;  // in the one launch
  double tolerance;
  const char* text;
};

constexpr Case kCases[] = {
    {"rows and columns", 2, 1e-5,
     R"(graph @g(%x: f32[70,100], %y: f32[501]) -> f32[70], f32[501] {
  %0: f32[70] = sum_dim(%x, [1], false)
  %1: f32[501] = sin(%y)
  return %0, %1
})"},
    {"long rows", 2, 1e-5,
     R"(graph @g(%x: f32[9,3000], %y: f32[501]) -> f32[9,3000], f32[501] {
  %0: f32[9,3000] = softmax(%x, -1)
  %1: f32[501] = sin(%y)
  return %0, %1
})"},
    {"tile", 2, 0,
     R"(graph @g(%x: f32[3,70,33], %y: f32[501]) -> f32[3,33,70], f32[501] {
  %0: f32[3,33,70] = transpose(%x, 1, 2)
  %1: f32[3,33,70] = clone(%0)
  %2: f32[501] = neg(%y)
  return %1, %2
})"},
    {"two last blocks", 2, 1e-5,
     // The products' memory is larger than that of both sums' parts.
     R"(graph @g(%x: f32[1024,100], %y: f32[1024,96], %z: f32[200,200]) -> f32[100], f32[96], f32[200,200] {
  %0: f32[100] = sum_dim(%x, [0], false)
  %1: f32[96] = amax(%y, [0], false)
  %2: f32[200,200] = matmul(%z, %z)
  %3: f32[200,200] = matmul(%2, %z)
  return %0, %1, %3
})"},
    {"last block and rows", 2, 1e-5,
     R"(graph @g(%x: f32[1024,100], %y: f32[37,50]) -> f32[100], f32[37] {
  %0: f32[100] = sum_dim(%x, [0], false)
  %1: f32[37] = sum_dim(%y, [1], false)
  return %0, %1
})"},
    {"shared operand", 3, 1e-5,
     R"(graph @g(%x: f32[64,100], %y: f32[33]) -> f32[64], f32[6400], f32[33] {
  %0: f32[64] = sum_dim(%x, [1], false)
  %1: f32[6400] = view(%x, [6400])
  %2: f32[6400] = flip(%1, [0])
  %3: f32[33] = exp(%y)
  return %0, %2, %3
})"},
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class SideBySide : public ::testing::TestWithParam<Case> {};

TEST_P(SideBySide, EachBlockRunsItsKernel) {
  const Case& c = GetParam();
  const ScheduledProgram scheduled = scheduled_on_gpu(c.text, c.name, 8);
  ASSERT_TRUE(std::holds_alternative<KernelStep>(scheduled.steps.front().action));
  auto step = std::get<KernelStep>(scheduled.steps.front().action);
  for (Param& p : step.kernel.params) p.alignment = 16;
  ASSERT_EQ(step.kernel.beside.size() + 1, c.kernels) << to_string(scheduled);
  const std::vector<Array> arrays = arrays_of(step, scheduled.program);
  std::vector<Array> expected = arrays;
  ASSERT_EQ(interpret(step.kernel, expected, {}), 0);
  kernel::Kernel made = expand(step.kernel, step.schedule, *scheduled.program.context);
  kernel::verify(made);
  const std::string text = kernel::to_string(made);
  EXPECT_EQ(kernel::to_string(kernel::parse_kernel(text, "text").kernel), text);
  EXPECT_GE(*made.blocks().constant(), static_cast<std::int64_t>(c.kernels));
  kernel::run_passes(made, *scheduled.program.context, kernel::gpu_passes(), {.verify_each = true});
  expect_run(made, arrays, expected, {}, kernel::Writes::any, c.tolerance, "lowered");
  if (::testing::Test::HasFailure()) ADD_FAILURE() << text << kernel::to_string(made);
}

INSTANTIATE_TEST_SUITE_P(Programs, SideBySide, ::testing::ValuesIn(kCases), [](const auto& one) {
  std::string name = one.param.name;
  std::ranges::replace(name, ' ', '_');
  return name;
});

}  // namespace
}  // namespace inkle::schedule::testing
