// Kernels with a last-block reduction as kernel IR: verified, and run by the interpreter with all
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
  bool by_strips;
  bool has_cells;
  std::size_t parts;
  double tolerance;
  const char* text;
  std::int32_t parallelism = 8;  // so few multiprocessors that little is work for several blocks
};

constexpr Case kCases[] = {
    {"sum", false, true, 1, 1e-5, R"(graph @g(%x: f32[128,1024]) -> f32[] {
  %0: f32[] = sum(%x)
  return %0
})"},
    {"any", false, false, 1, 0, R"(graph @g(%x: bool[128,1024]) -> bool[] {
  %0: bool[] = any(%x)
  return %0
})"},
    {"loss", false, true, 1, 1e-5, R"(graph @g(%x: f32[128,1025], %y: f32[128,1025]) -> f32[] {
  %0: f32[] = mse_loss(%x, %y)
  return %0
})"},
    {"place", false, false, 1, 0, R"(graph @g(%x: bf16[128,1024]) -> i64[] {
  %0: i64[] = argmax(%x)
  return %0
})"},
    {"few columns", false, false, 1, 1e-5, R"(graph @g(%x: f32[1024,100]) -> f32[100] {
  %0: f32[100] = sum_dim(%x, [0], false)
  return %0
})"},
    {"moments", false, false, 1, 1e-5, R"(graph @g(%x: f32[4096,32]) -> f32[32], f32[32] {
  %0: f32[32], %1: f32[32] = var_mean_dim(%x, [0], true, false)
  return %0, %1
})"},
    {"places", false, false, 1, 0, R"(graph @g(%x: f32[2048,64]) -> i64[64] {
  %0: i64[64] = argmin(%x, 0, false)
  return %0
})"},
    {"strips", true, false, 1, 1e-5, R"(graph @g(%x: f32[256,2047]) -> f32[2047] {
  %0: f32[2047] = sum_dim(%x, [0], false)
  return %0
})",
     32},
    {"moments in strips", true, false, 1, 1e-5,
     R"(graph @g(%x: f32[256,2048]) -> f32[2048], f32[2048] {
  %0: f32[2048], %1: f32[2048] = var_mean_dim(%x, [0], true, false)
  return %0, %1
})",
     32},
    // Results are rounded to 8 bits.
    {"half precision", false, false, 1, 8e-3, R"(graph @g(%x: bf16[512,384]) -> bf16[384] {
  %0: bf16[384] = sum_dim(%x, [0], false)
  return %0
})",
     32},
    {"two parts", false, false, 2, 1e-5,
     R"(graph @g(%x: f32[1024,64], %v: f32[32,64]) -> f32[64], f32[32] {
  %0: f32[64] = sum_dim(%x, [0], false)
  %1: f32[32,64] = mul(%v, %0)
  %2: f32[32] = sum_dim(%1, [1], false)
  return %0, %2
})"},
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class LastBlocks : public ::testing::TestWithParam<Case> {};

TEST_P(LastBlocks, AreDoneByTheLastBlock) {
  const Case& c = GetParam();
  const ScheduledProgram scheduled = scheduled_on_gpu(c.text, c.name, c.parallelism);
  ASSERT_EQ(scheduled.steps.size(), 1u);
  auto step = std::get<KernelStep>(scheduled.steps.front().action);
  for (Param& p : step.kernel.params) p.alignment = 16;
  ASSERT_TRUE(step.kernel.last_block.has_value());
  EXPECT_EQ(step.kernel.last_block->by_strips, c.by_strips);
  EXPECT_EQ(!step.kernel.last_block->cells.empty(), c.has_cells);
  EXPECT_EQ(step.kernel.last_block->parts.size(), c.parts);
  const std::vector<Array> arrays = arrays_of(step, scheduled.program);
  std::vector<Array> expected = arrays;
  ASSERT_EQ(interpret(step.kernel, expected, {}), 0);
  sym::Context& context = *scheduled.program.context;
  kernel::Kernel made = expand(step.kernel, step.schedule, context);
  kernel::verify(made);
  const std::string text = kernel::to_string(made);
  EXPECT_EQ(kernel::to_string(kernel::parse_kernel(text, "text").kernel), text);
  EXPECT_GT(*made.blocks().constant(), 1);
  kernel::run_passes(made, context, kernel::gpu_passes(), {.verify_each = true});
  expect_run(made, arrays, expected, {}, kernel::Writes::any, c.tolerance, "lowered");
  if (::testing::Test::HasFailure()) ADD_FAILURE() << text << kernel::to_string(made);
}

INSTANTIATE_TEST_SUITE_P(Programs, LastBlocks, ::testing::ValuesIn(kCases), [](const auto& one) {
  std::string name = one.param.name;
  std::ranges::replace(name, ' ', '_');
  return name;
});

}  // namespace
}  // namespace inkle::schedule::testing
