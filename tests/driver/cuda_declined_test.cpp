// Schedules that the CUDA code generator declines: the kernel runs in a plainer way, and not its
// whole graph in eager.
#include <gtest/gtest.h>

#include "base/error.h"
#include "codegen/cuda/compiler.h"
#include "driver/target.h"
#include "graph/text.h"
#include "lower/lower.h"
#include "ops/table.h"
#include "passes/pipeline.h"
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
  const auto compiled = target_->compile({&unit, 1}, false);
  ASSERT_EQ(compiled.size(), 1U);
  EXPECT_NE(compiled[0].ir.find("cluster 1"), std::string::npos) << compiled[0].ir;
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
    (void)target_->compile({&unit, 1}, false);
    FAIL() << "attention is no kernel here";
  } catch (const Unsupported& error) {
    EXPECT_NE(std::string(error.what()).find("(sdpa)"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace inkle::driver
