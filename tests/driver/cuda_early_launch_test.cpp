// Kernels that are launched before earlier ones have ended read nothing before they have waited.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "abi/targets.h"
#include "codegen/cuda/compiler.h"
#include "driver/machine_code.h"
#include "graph/text.h"
#include "lower/lower.h"
#include "ops/table.h"
#include "passes/pipeline.h"
#include "schedule/schedule.h"

namespace inkle::driver {
namespace {

using codegen::cuda::CompileUnit;

// A norm of the sum of pooled rows and what a matrix product may have made: its loops are unrolled,
// so that all reads are in the basic block of the wait unless something ends it.
constexpr const char* kPooled = R"(graph @pooled(
    %x: f32[128,1536]@cuda:0,
    %y: f32[32,384]@cuda:0,
    %bias: f32[1536]@cuda:0 param,
    %more: f32[384]@cuda:0 param,
    %scale: f32[384]@cuda:0 param,
    %shift: f32[384]@cuda:0 param)
    -> f32[2,16,384]@cuda:0, f32[2,16,384]@cuda:0 {
  %0: f32[128,1536]@cuda:0 = add(%x, %bias)
  %1: f32[128,384]@cuda:0 = slice(%0, 1, 0, 384)
  %2: f32[2,8,8,384]@cuda:0 = reshape(%1, [2, 8, 8, 384])
  %3: f32[2,384,8,8]@cuda:0 = permute(%2, [0, 3, 1, 2])
  %4: f32[2,384,4,4]@cuda:0, %5: i64[2,384,4,4]@cuda:0 = max_pool2d_with_indices(%3, [3, 3], [2, 2], [1, 1], [1, 1])
  %6: f32[2,384,16]@cuda:0 = view(%4, [2, 384, -1])
  %7: f32[2,16,384]@cuda:0 = transpose(%6, 1, 2)
  %8: f32[32,384]@cuda:0 = add(%y, %more)
  %9: f32[2,16,384]@cuda:0 = view(%8, [2, 16, 384])
  %10: f32[2,16,384]@cuda:0 = add(%7, %9)
  %11: f32[2,16,384]@cuda:0, %12: f32[2,16,1]@cuda:0, %13: f32[2,16,1]@cuda:0 = native_layer_norm(%10, [384], %scale, %shift, 1e-06)
  return %10, %11
})";

TEST(CudaEarlyLaunch, NothingIsReadBeforeTheWait) {
  std::string why_not;
  if (!codegen::cuda::find_nvrtc(why_not)) GTEST_SKIP() << "no NVRTC: " << why_not;
  passes::PassContext context;
  schedule::Options options;
  options.target = *abi::gpu_target("sm_90a");
  const schedule::ScheduledProgram scheduled = schedule::schedule(
      lower::lower(passes::run_passes(graph::parse(kPooled, "pooled", ops::op_table()),
                                      passes::standard_pipeline(), context)),
      options);
  std::vector<CompileUnit> units;
  for (const schedule::Step& step : scheduled.steps) {
    const auto& kernel = std::get<schedule::KernelStep>(step.action);
    units.push_back({&kernel.kernel, kernel.schedule, fmt::format("k{}", units.size())});
  }
  ASSERT_FALSE(units.empty());
  const codegen::cuda::CudaCompiler compiler(abi::typical_device("sm_90a"));
  for (const abi::DeviceImage& image : compiler.compile(units).images) {
    EXPECT_THAT(kernels_ahead_of_wait(*image.data), testing::IsEmpty());
  }
}

}  // namespace
}  // namespace inkle::driver
