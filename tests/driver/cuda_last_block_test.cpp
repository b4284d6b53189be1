// Programs whose reductions are finished by a last block, and scans of rows that blocks share:
// which launches there are, and that NVRTC compiles them for each architecture.
#include <gtest/gtest.h>

#include "abi/targets.h"
#include "base/error.h"
#include "codegen/cuda/compiler.h"
#include "graph/text.h"
#include "lower/lower.h"
#include "ops/table.h"
#include "passes/pipeline.h"
#include "schedule/schedule.h"

namespace inkle::driver {
namespace {

using codegen::cuda::CompileUnit;

struct Program {
  const char* name;
  std::size_t launches;
  std::size_t with_workspace;
  const char* text;
};

constexpr Program kPrograms[] = {
    {"sum", 1, 1, R"(graph @g(%x: bf16[8192,8192]) -> bf16[] {
  %0: bf16[] = sum(%x)
  return %0
})"},
    {"columns", 1, 1, R"(graph @g(%x: f64[8192,1023]) -> f64[1023] {
  %0: f64[1023] = sum_dim(%x, [0], false)
  return %0
})"},
    {"any", 1, 1, R"(graph @g(%x: bool[4096,4096]) -> bool[] {
  %0: bool[] = any(%x)
  return %0
})"},
    {"moments", 1, 1, R"(graph @g(%x: f32[65536,64]) -> f32[64], f32[64] {
  %0: f32[64], %1: f32[64] = var_mean_dim(%x, [0], true, false)
  return %0, %1
})"},
    {"loss", 1, 1, R"(graph @g(%x: f32[4096,4096], %y: f32[4096,4096]) -> f32[] {
  %0: f32[] = mse_loss(%x, %y)
  return %0
})"},
    {"layer norm backward", 2, 1,
     R"(graph @g(%d: bf16[16384,768], %x: bf16[16384,768], %m: f32[16384,1], %r: f32[16384,1], %g: bf16[768], %b: bf16[768]) -> bf16[16384,768], bf16[768], bf16[768] {
  %0: bf16[16384,768], %1: bf16[768], %2: bf16[768] = native_layer_norm_backward(%d, %x, [768], %m, %r, %g, %b, [true, true, true])
  return %0, %1, %2
})"},
    {"place", 1, 1, R"(graph @g(%x: bf16[4096,4096]) -> i64[] {
  %0: i64[] = argmax(%x)
  return %0
})"},
    {"places", 1, 1, R"(graph @g(%x: f32[16384,256]) -> i64[256] {
  %0: i64[256] = argmin(%x, 0, false)
  return %0
})"},
    {"scan", 1, 1, R"(graph @g(%x: bf16[16777216]) -> bf16[16777216] {
  %0: bf16[16777216] = cumsum(%x, 0)
  return %0
})"},
    {"scan of f64", 1, 1, R"(graph @g(%x: f64[4,1048577]) -> f64[4,1048577] {
  %0: f64[4,1048577] = cumprod(%x, 1)
  return %0
})"},
    {"scan of any length", 1, 1,
     R"(graph @g(%x: i64[s0]) -> i64[s0] where s0 in 2..100000000 hint 10000000 {
  %0: i64[s0] = cumsum(%x, 0)
  return %0
})"},
    {"updates without elements", 1, 0,
     R"(graph @g(%p: f32[3,0]@cuda:0, %m: f32[3,0]@cuda:0, %s: f32[]@cuda:0) -> f32[]@cuda:0 {
  %0: f32[]@cuda:0 = add(%s, 1)
  %1: f32[]@cuda:0 = pow(0.9, %0)
  %2: f32[]@cuda:0 = rsub(%1, 1)
  %3: f32[3,0]@cuda:0 = mul(%m, %m)
  %4: f32[3,0]@cuda:0 = sqrt(%3)
  %5: f32[3,0]@cuda:0 = div(%4, %2)
  %6: f32[3,0]@cuda:0 = addcdiv(%p, %m, %5)
  %7: f32[3,0]{1,1}@cuda:0 = copy_(%p, %6)
  return %0
})"},
    {"short rows", 1, 0, R"(graph @g(%x: bf16[8192,8192]) -> bf16[8192] {
  %0: bf16[8192] = sum_dim(%x, [1], false)
  return %0
})"},
};

class CudaLastBlocks : public testing::TestWithParam<const char*> {};

TEST_P(CudaLastBlocks, Compile) {
  const codegen::cuda::CudaCompiler compiler(abi::typical_device(GetParam()));
  std::string why_not;
  const bool has_nvrtc = codegen::cuda::find_nvrtc(why_not).has_value();
  for (const Program& program : kPrograms) {
    SCOPED_TRACE(program.name);
    passes::PassContext context;
    schedule::Options options;
    options.target = *abi::gpu_target(GetParam());
    const schedule::ScheduledProgram scheduled = schedule::schedule(
        lower::lower(passes::run_passes(graph::parse(program.text, program.name, ops::op_table()),
                                        passes::standard_pipeline(), context)),
        options, {.skip = {"split_columns"}});  // whose second stages are kernels
    std::vector<CompileUnit> units;
    for (const schedule::Step& step : scheduled.steps) {
      const auto& kernel = std::get<schedule::KernelStep>(step.action);
      units.push_back({&kernel.kernel, kernel.schedule, fmt::format("k{}", units.size())});
    }
    EXPECT_EQ(units.size(), program.launches);
    if (!has_nvrtc) continue;
    std::size_t with_workspace = 0;
    for (const auto& made : compiler.compile(units).kernels) {
      if (made.kernel.has_workspace) ++with_workspace;
      EXPECT_EQ(made.kernel.has_workspace, !made.workspace_bytes.is_constant(0));
    }
    EXPECT_EQ(with_workspace, program.with_workspace);
  }
}

INSTANTIATE_TEST_SUITE_P(Architectures, CudaLastBlocks,
                         testing::Values("sm_80", "sm_90a", "sm_100"));

}  // namespace
}  // namespace inkle::driver
