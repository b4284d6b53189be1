// Elementwise kernels with transposed operands: what the model chooses, and that every way to turn
// tiles around is made and compiled by NVRTC.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "abi/targets.h"
#include "base/error.h"
#include "codegen/cuda/compiler.h"
#include "graph/text.h"
#include "lower/lower.h"
#include "ops/table.h"
#include "passes/pipeline.h"
#include "schedule/blocks.h"
#include "schedule/schedule.h"

namespace inkle::driver {
namespace {

using codegen::cuda::CompileUnit;
using codegen::cuda::CudaCompiler;
using schedule::BlockSchedule;

schedule::ScheduledProgram scheduled(const std::string& text,
                                     const abi::DeviceDescription& device) {
  passes::PassContext context;
  schedule::Options options;
  options.target = abi::gpu_target_of(device);
  return schedule::schedule(
      lower::lower(passes::run_passes(graph::parse(text, "in", ops::op_table()),
                                      passes::standard_pipeline(), context, {})),
      options);
}

// x.t() + y, of columns x rows and rows x columns.
std::string sum(std::int64_t rows, std::int64_t columns, std::string_view x, std::string_view y,
                std::string_view result) {
  return fmt::format(
      "graph @sum(%x: {2}[{1},{0}], %y: {3}[{0},{1}]) -> {4}[{0},{1}] {{\n"
      "  %t: {2}[{0},{1}] = t(%x)\n"
      "  %0: {4}[{0},{1}] = add(%t, %y)\n"
      "  return %0\n}}\n",
      rows, columns, x, y, result);
}

std::string same(std::int64_t rows, std::int64_t columns, std::string_view dtype) {
  return sum(rows, columns, dtype, dtype, dtype);
}

// (x.t() + y) * z.t()
std::string two(std::int64_t rows, std::int64_t columns) {
  return fmt::format(
      "graph @two(%x: bf16[{1},{0}], %y: bf16[{0},{1}], %z: bf16[{1},{0}]) -> bf16[{0},{1}] {{\n"
      "  %t: bf16[{0},{1}] = t(%x)\n"
      "  %u: bf16[{0},{1}] = t(%z)\n"
      "  %0: bf16[{0},{1}] = add(%t, %y)\n"
      "  %1: bf16[{0},{1}] = mul(%0, %u)\n"
      "  return %1\n}}\n",
      rows, columns);
}

const schedule::KernelStep& only_kernel(const schedule::ScheduledProgram& program) {
  EXPECT_EQ(program.steps.size(), 1U);
  return std::get<schedule::KernelStep>(program.steps.front().action);
}

BlockSchedule chosen(const std::string& text) {
  const auto program = scheduled(text, abi::typical_device("sm_90a"));
  return *only_kernel(program).schedule.blocks;
}

std::int32_t side(const std::string& text) { return chosen(text).tile().side; }

TEST(Tiles, AreSharedWhereTheyFillTheDevice) {
  EXPECT_NE(side(same(8192, 8192, "bf16")), 0);
  EXPECT_NE(side(same(4096, 8192, "f32")), 0);
  EXPECT_NE(side(same(5000, 8008, "bf16")), 0) << "over the end by little";
  EXPECT_NE(side(two(8192, 8192)), 0);
  EXPECT_NE(side(same(8192, 8192, "u8")), 0);
  EXPECT_NE(side(same(4096, 4096, "i64")), 0);
  EXPECT_EQ(side(sum(8192, 8192, "u8", "f32", "f32")), 0) << "no tile fits both";
  EXPECT_EQ(side(same(512, 1024, "bf16")), 0);
  EXPECT_EQ(side(same(8, 1 << 22, "bf16")), 0) << "most of a tile lies over the end";
  EXPECT_TRUE(chosen(same(8191, 8192, "bf16")).is<BlockSchedule::Columns>());
}

TEST(Tiles, AreReadAsWritten) {
  BlockSchedule b = chosen(same(8192, 8192, "bf16"));
  EXPECT_EQ(schedule::parse_blocks(to_string(b)), b);
  b.mapping = BlockSchedule::Tile{};
  EXPECT_EQ(schedule::parse_blocks(to_string(b)), b);
}

TEST(Tiles, HaveNoFieldsOfRows) {
  EXPECT_EQ(schedule::parse_blocks("columns team 8").columns().team, 8);
  EXPECT_THROW((void)schedule::parse_blocks("tile team 2"), UserError);
  EXPECT_THROW((void)schedule::parse_blocks("columns keep"), UserError);
  EXPECT_THROW((void)schedule::parse_blocks("rows side 64"), UserError);
}

class TileTexts : public ::testing::TestWithParam<const char*> {};

TEST_P(TileTexts, OfAllCandidatesCompile) {
  const CudaCompiler compiler(abi::typical_device(GetParam()));
  std::vector<schedule::ScheduledProgram> programs;
  for (const std::string_view dtype : {"u8", "bf16", "f16", "f32", "f64", "i64"}) {
    programs.push_back(scheduled(same(8192, 4096, dtype), compiler.device()));
    programs.push_back(scheduled(same(4104, 5080, dtype), compiler.device()));
  }
  programs.push_back(scheduled(sum(8192, 4096, "bf16", "f32", "f32"), compiler.device()));
  programs.push_back(scheduled(sum(8192, 4096, "f32", "bf16", "f32"), compiler.device()));
  programs.push_back(scheduled(two(8192, 4104), compiler.device()));
  std::vector<CompileUnit> units;
  std::size_t shared = 0;
  for (const schedule::ScheduledProgram& program : programs) {
    const schedule::KernelStep& step = only_kernel(program);
    std::vector<BlockSchedule> candidates =
        candidate_blocks(step.kernel, *step.schedule.blocks, *abi::gpu_target(GetParam()));
    candidates.push_back(*step.schedule.blocks);
    for (const BlockSchedule& blocks : candidates) {
      schedule::Schedule schedule = step.schedule;
      schedule.blocks = blocks;
      CompileUnit unit{&step.kernel, schedule, fmt::format("k{}", units.size())};
      try {
        (void)compiler.source(unit);
      } catch (const Unsupported&) {
        EXPECT_FALSE(blocks == *step.schedule.blocks) << "the model's choice";
        continue;
      }
      if (blocks.tile().side != 0) ++shared;
      units.push_back(std::move(unit));
    }
  }
  EXPECT_GT(shared, 2 * programs.size());
  std::string why_not;
  if (!codegen::cuda::find_nvrtc(why_not)) GTEST_SKIP() << "no NVRTC: " << why_not;
  EXPECT_EQ(compiler.compile(units).kernels.size(), units.size());
}

INSTANTIATE_TEST_SUITE_P(Architectures, TileTexts, ::testing::Values("sm_80", "sm_90a", "sm_100"),
                         [](const auto& architecture) { return std::string(architecture.param); });

}  // namespace
}  // namespace inkle::driver
