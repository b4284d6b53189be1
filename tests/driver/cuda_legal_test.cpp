// Schedules that a kernel cannot run under: a fallback is chosen, and what needs more shared
// memory than a block has without asking asks for it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "abi/targets.h"
#include "base/error.h"
#include "base/unsupported.h"
#include "codegen/cuda/compiler.h"
#include "driver/pipeline.h"
#include "driver/target.h"
#include "graph/text.h"
#include "lower/lower.h"
#include "ops/table.h"
#include "passes/pipeline.h"
#include "runtime/common/size_program.h"
#include "schedule/legal_blocks.h"
#include "schedule/schedule.h"

namespace inkle::driver {
namespace {

class LegalBlocks : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string why_not;
    if (!codegen::cuda::find_nvrtc(why_not)) GTEST_SKIP() << why_not;
  }

  schedule::KernelStep kernel_of(std::string_view text) {
    passes::PassContext context;
    graph::Graph graph = graph::parse(text, "test.ir", ops::op_table());
    graph = passes::run_passes(std::move(graph), passes::standard_pipeline(), context, {});
    schedule::Options options;
    options.target = row_;
    program_ = schedule::schedule(lower::lower(graph), options);
    return std::get<schedule::KernelStep>(program_.steps.at(0).action);
  }

  std::unique_ptr<Backend> target_ = make_null_target("sm_90a");
  abi::Target row_ = *abi::gpu_target("sm_90a");
  schedule::ScheduledProgram program_;
};

TEST_F(LegalBlocks, AreChosenNearThoseWanted) {
  auto step = kernel_of(R"(graph @g(%x: f32[64,65536]) -> f32[64,65536] {
  %0: f32[64,65536] = cumsum(%x, 1)
  return %0
})");
  auto& scan = std::get<schedule::RowBlocks>(step.schedule.blocks->mapping);
  scan.chunk = 0;
  scan.cluster = 2;  // a scan by a cluster is declined
  const codegen::cuda::CudaCompiler generator(target_->device());
  EXPECT_THROW((void)generator.source({&step.kernel, step.schedule, "k"}), Unsupported);
  const auto legal =
      schedule::legal_blocks(step.kernel, *step.schedule.blocks, row_, *program_.program.context);
  EXPECT_EQ(legal.rows().cluster, 1);
  EXPECT_EQ(legal.lanes, step.schedule.blocks->lanes);
  EXPECT_EQ(schedule::objection(step.kernel, legal, *program_.program.context), "");
}

TEST_F(LegalBlocks, AtomicAdditionsOfBytesAreRefusedByName) {
  const auto why = [&](std::string_view dtype) -> std::string {
    try {
      (void)kernel_of(fmt::format(R"(graph @g(%x: {0}[3,3], %i: i64[2], %v: {0}[2,3]) -> {0}[3,3] {{
  %0: {0}[3,3] = index_put(%x, [%i], %v, true)  # model.py:3
  return %0
}})",
                                  dtype));
    } catch (const Unsupported& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(why("i32"), "");
  EXPECT_EQ(why("bf16"), "");
  EXPECT_THAT(why("i8"), ::testing::HasSubstr("model.py:3"));
  EXPECT_THAT(why("i8"), ::testing::HasSubstr("atomic additions of i8 are not supported"));
}

// A gradient of part of a tensor, which ends before it begins.
TEST_F(LegalBlocks, RowsWithoutElementsHaveMemory) {
  const auto step = kernel_of(R"(
graph @g(%n: int = s0, %x: f64[0], %t: f64[0]) -> f64[s0] where s0 in 2..281474976710656 hint 4 {
  %0: f64[1] = sum_dim(%t, [0], true)
  %1: f64[0] = exp(%x)
  %2: f64[0] = mul(%1, %0)
  %3: f64[s0] = slice_backward(%2, [s0], 0, -1, -2, 1)
  return %3
})");
  const codegen::cuda::CudaCompiler generator(target_->device());
  const std::string source = generator.source({&step.kernel, step.schedule, "k"});
  EXPECT_THAT(source, ::testing::HasSubstr("double m3[32]"));  // one of each team
}

// Batch norm, max pooling and the statistics of the next batch norm are one kernel, whose columns
// by lanes of eight are joined in 48 KB of shared memory and some bytes.
constexpr std::string_view kPooledNorms = R"(
graph @g(%x: bf16[2,10,32,32]{10240,1,320,10}) -> bf16[2,10,16,16]{2560,1,160,10} {
  %0: f32[2,10,32,32] = _to_copy(%x, f32)
  %1: f32[10], %2: f32[10] = var_mean(%0, [0, 2, 3], 0.0)
  %3: f32[10,1,1] = reshape(%2, [10, 1, 1])
  %4: f32[2,10,32,32] = sub(%0, %3)
  %5: f32[10,1,1] = reshape(%1, [10, 1, 1])
  %6: f32[2,10,32,32] = mul(%4, %5)
  %7: bf16[2,10,32,32] = _to_copy(%6, bf16)
  %8: bf16[2,10,16,16]{2560,1,160,10}, %9: i64[2,10,16,16] =
      max_pool2d_with_indices(%7, [3, 3], [2, 2], [1, 1], [1, 1], false)
  %10: f32[2,10,16,16] = _to_copy(%8, f32)
  %11: f32[10], %12: f32[10] = var_mean(%10, [0, 2, 3], 0.0)
  %13: f32[10,1,1] = reshape(%12, [10, 1, 1])
  %14: f32[2,10,16,16] = sub(%10, %13)
  %15: f32[10,1,1] = reshape(%11, [10, 1, 1])
  %16: f32[2,10,16,16] = mul(%14, %15)
  %17: bf16[2,10,16,16] = _to_copy(%16, bf16)
  return %17
})";

TEST_F(LegalBlocks, AskForMuchSharedMemory) {
  Compiler compiler(make_null_target("sm_90a"));
  graph::Graph graph = graph::parse(kPooledNorms, "test.ir", ops::op_table());
  for (std::uint32_t v = 0; v < graph.value_count(); ++v) {
    graph.type(graph::ValueId{v}).device = compiler.location();
  }
  const auto compiled = compiler.compile(std::move(graph), {});
  const auto& launch = std::get<abi::Launch>(compiled.plan->steps.at(1).action);
  const abi::KernelDecl& kernel = compiled.plan->kernels.at(launch.kernel);
  const std::string& schedule = compiled.report.schedules.at(launch.kernel);
  EXPECT_NE(schedule.find("lanes 8"), std::string::npos) << schedule;
  EXPECT_GT(kernel.device->shared_bytes, 48 << 10);
  const std::string& text = *compiled.code->sources.at(launch.kernel);
  EXPECT_NE(text.find("extern __shared__"), std::string::npos) << text;
  const runtime::common::SizeProgram sizes(*compiled.plan);
  EXPECT_EQ(sizes.constant_slots()[launch.extent], 2);
}

// Whatever is wanted of rows, what is taken has code.
TEST_F(LegalBlocks, HaveCode) {
  const auto step = kernel_of(R"(graph @g(%x: f32[128,131072]) -> f32[128,131072] {
  %0: f32[128,131072] = _softmax(%x, 1, false)
  return %0
})");
  ASSERT_GT(step.schedule.blocks->cluster(), 1);
  sym::Context& context = *program_.program.context;
  const codegen::cuda::CudaCompiler generator(target_->device());
  for (const std::int32_t team : {1, 3, 32, 48, 512}) {
    for (const std::int32_t cluster : {1, 2}) {
      schedule::Schedule schedule = step.schedule;
      auto& rows = std::get<schedule::RowBlocks>(schedule.blocks->mapping);
      rows.team = team;
      rows.cluster = cluster;
      const std::string why = schedule::objection(step.kernel, *schedule.blocks, context);
      EXPECT_EQ(why.empty(), team == 512 || (cluster == 1 && (team == 1 || team == 32))) << team;
      if (!why.empty()) {
        EXPECT_THROW((void)generator.source({&step.kernel, schedule, "k"}), Unsupported);
      }
      schedule.blocks = schedule::legal_blocks(step.kernel, *schedule.blocks, row_, context);
      EXPECT_NO_THROW((void)generator.source({&step.kernel, schedule, "k"}))
          << to_string(*schedule.blocks);
    }
  }
}

// Ten rows by four warps of a block: a warp reads what its other threads have written to the
// result, and no barrier of the block can stand there.
TEST_F(LegalBlocks, RowsThatOtherThreadsReadHaveCode) {
  const auto step = kernel_of(R"(
graph @g(%x: i64[10,5]) -> i64[10,5], bool[10,5,5] {
  %0: i64[5] = arange(5, none, none, cpu, false)
  %1: bool[10,5] = eq(%x, -1)
  %2: i64[] = scalar_tensor(5, i64, "strided", cpu)
  %3: i64[10,5] = where(%1, %0, %2)
  %4: i64[10,1] = amin(%3, [-1], true)
  %5: bool[10,5] = lt(%0, %4)
  %6: i64[10,5] = where(%5, %x, -1)
  %7: i64[10,5,1] = unsqueeze(%6, -1)
  %8: bool[10,5,5] = eq(%0, %7)
  return %6, %8
})");
  const codegen::cuda::CudaCompiler generator(target_->device());
  const std::string source = generator.source({&step.kernel, step.schedule, "k"});
  EXPECT_THAT(source, ::testing::HasSubstr("__syncwarp"));
}

TEST_F(LegalBlocks, AnErrorNamesWhereTheKernelComesFrom) {
  auto step = kernel_of(R"(graph @g(%x: f32[64,65536]) -> f32[64,65536] {
  %0: f32[64,65536] = cumsum(%x, 1)  # model.py:7 (cumsum)
  return %0
})");
  step.schedule.blocks.reset();
  schedule::Kernel attention = step.kernel;
  attention.sources = {"model.py:7 (sdpa)"};
  schedule::AttentionKernel body;
  body.batch = std::get<schedule::LoopKernel>(step.kernel.body).outer[0].extent;
  attention.body = body;
  step.schedule.blocks = schedule::BlockSchedule{};
  // The key of a kept module is made of the text, whatever is missing of the kernel.
  EXPECT_NE(schedule::to_string(attention).find("heads none"), std::string::npos);
  const TargetUnit unit{&attention, step.schedule, "k"};
  try {
    (void)target_->compile({&unit, 1}, {});
    FAIL() << "attention is no kernel here";
  } catch (const Unsupported& error) {
    EXPECT_NE(std::string(error.what()).find("(sdpa)"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace inkle::driver
