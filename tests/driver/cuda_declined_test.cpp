// Schedules that the CUDA code generator declines: the kernel runs in a plainer way, and not its
// whole graph in eager.
#include <gtest/gtest.h>

#include "base/error.h"
#include "codegen/cuda/compiler.h"
#include "driver/pipeline.h"
#include "driver/target.h"
#include "graph/text.h"
#include "lower/lower.h"
#include "ops/table.h"
#include "passes/pipeline.h"
#include "runtime/common/size_program.h"
#include "schedule/blocks.h"
#include "schedule/schedule.h"

namespace inkle::driver {
namespace {

class Declined : public ::testing::Test {
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
    options.device = target_->device();
    program_ = schedule::schedule(lower::lower(graph), options);
    return std::get<schedule::KernelStep>(program_.steps.at(0).action);
  }

  std::unique_ptr<Target> target_ = make_null_target("sm_90a");
  schedule::ScheduledProgram program_;
};

TEST_F(Declined, RunsInAPlainerWay) {
  auto step = kernel_of(R"(graph @g(%x: f32[64,65536]) -> f32[64,65536] {
  %0: f32[64,65536] = cumsum(%x, 1)
  return %0
})");
  step.schedule.blocks->chunk = 0;
  step.schedule.blocks->cluster = 2;  // a scan by a cluster is declined
  const codegen::cuda::CudaCompiler generator(target_->device());
  EXPECT_THROW((void)generator.source({&step.kernel, step.schedule, "k"}), Unsupported);
  const TargetUnit unit{&step.kernel, step.schedule, "k"};
  const auto compiled = target_->compile({&unit, 1}, {});
  ASSERT_EQ(compiled.size(), 1U);
  EXPECT_NE(compiled[0].ir.find("cluster 1"), std::string::npos) << compiled[0].ir;
}

// Batch norm, max pooling and the statistics of the next batch norm are one kernel, whose columns
// by lanes of eight need more shared memory than there is.
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

TEST_F(Declined, IsLaunchedInThePlainerWay) {
  (void)kernel_of(kPooledNorms);
  const codegen::cuda::CudaCompiler generator(target_->device());
  const auto& step = std::get<schedule::KernelStep>(program_.steps.at(1).action);
  EXPECT_THROW((void)generator.source({&step.kernel, step.schedule, "k"}), Unsupported);
  EXPECT_TRUE(schedule::parallel_extent(step.kernel, step.schedule, *program_.program.context)
                  .is_constant(2));

  Compiler compiler(make_null_target("sm_90a"));
  graph::Graph graph = graph::parse(kPooledNorms, "test.ir", ops::op_table());
  for (std::uint32_t v = 0; v < graph.value_count(); ++v) {
    graph.type(graph::ValueId{v}).device = compiler.location();
  }
  const auto compiled = compiler.compile(std::move(graph), {});
  const auto& launch = std::get<abi::Launch>(compiled.plan->steps.at(1).action);
  const abi::KernelDecl& kernel = compiled.plan->kernels.at(launch.kernel);
  for (const std::string& text : {kernel.text, *compiled.code->sources.at(launch.kernel)}) {
    EXPECT_NE(text.find("threads 512 team 512 lanes 1"), std::string::npos) << text;
  }
  const runtime::common::SizeProgram sizes(*compiled.plan);
  EXPECT_EQ(sizes.constant_slots()[launch.extent], 10);  // a block for each column
}

TEST_F(Declined, EndsWithOneThreadAnIteration) {
  const auto step = kernel_of(R"(graph @g(%x: f32[128,131072]) -> f32[128,131072] {
  %0: f32[128,131072] = _softmax(%x, 1, false)
  return %0
})");
  ASSERT_GT(step.schedule.blocks->cluster, 1);
  const auto ways = schedule::plainer_blocks(step.kernel, *step.schedule.blocks, target_->device());
  ASSERT_FALSE(ways.empty());
  EXPECT_EQ(ways.front().cluster, 1);
  EXPECT_EQ(ways.front().lanes, step.schedule.blocks->lanes);
  EXPECT_EQ(ways.back().team, 1);
  EXPECT_EQ(ways.back().axis, schedule::BlockSchedule::Axis::outer);
  const codegen::cuda::CudaCompiler generator(target_->device());
  for (const schedule::BlockSchedule& way : ways) {
    schedule::Schedule schedule = step.schedule;
    schedule.blocks = way;
    EXPECT_NO_THROW((void)generator.source({&step.kernel, schedule, "k"})) << to_string(way);
  }
}

TEST_F(Declined, NamesWhereItComesFrom) {
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
