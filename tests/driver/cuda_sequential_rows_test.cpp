// Backwards of norms as kernels that walk rows: made for every kind of team, and compiled by NVRTC.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "abi/targets.h"
#include "codegen/cuda/compiler.h"
#include "graph/text.h"
#include "lower/lower.h"
#include "ops/table.h"
#include "passes/pipeline.h"
#include "schedule/schedule.h"

namespace inkle::driver {
namespace {

using codegen::cuda::CompileUnit;
using codegen::cuda::CudaCompiler;

schedule::ScheduledProgram scheduled(const std::string& text,
                                     const abi::DeviceDescription& device) {
  passes::PassContext context;
  schedule::Options options;
  options.target = abi::gpu_target_of(device);
  options.training = true;
  return schedule::schedule(
      lower::lower(passes::run_passes(graph::parse(text, "in", ops::op_table()),
                                      passes::standard_pipeline(), context, {})),
      options);
}

std::string layer_norm(const std::string& rows, std::int64_t columns, std::string_view dtype,
                       std::string_view moments) {
  return fmt::format(
      "graph @norm(%d: {2}[{0},{1}], %x: {2}[{0},{1}], %m: {3}[{0},1], %r: {3}[{0},1], %w: "
      "{2}[{1}], "
      "%b: {2}[{1}]) -> {2}[{0},{1}], {2}[{1}], {2}[{1}] {{\n"
      "  %0: {2}[{0},{1}], %1: {2}[{1}], %2: {2}[{1}] = native_layer_norm_backward(%d, %x, [{1}], "
      "%m, "
      "%r, %w, %b, [true, true, true])\n"
      "  return %0, %1, %2\n}}\n",
      rows, columns, dtype, moments);
}

std::string rms_norm(const std::string& rows, std::int64_t columns, std::string_view dtype) {
  return fmt::format(
      "graph @norm(%d: {2}[{0},{1}], %x: {2}[{0},{1}], %r: f32[{0},1], %w: {2}[{1}]) -> "
      "{2}[{0},{1}], {2}[{1}] {{\n"
      "  %0: {2}[{0},{1}], %1: {2}[{1}] = _fused_rms_norm_backward(%d, %x, [{1}], %r, %w, [true, "
      "true])\n"
      "  return %0, %1\n}}\n",
      rows, columns, dtype);
}

std::vector<std::string> graphs() {
  std::vector<std::string> result;
  for (const std::int64_t columns : {256, 264, 768, 1024, 2048, 8192}) {
    result.push_back(layer_norm("8192", columns, "bf16", "f32"));
    result.push_back(layer_norm("8,512", columns, "f32", "f32"));
    result.push_back(layer_norm("128,197", columns, "f16", "f32"));
    result.push_back(rms_norm("16384", columns, "bf16"));
    result.push_back(rms_norm("4,2048", columns, "f32"));
  }
  return result;
}

class SequentialRows : public ::testing::TestWithParam<const char*> {};

TEST_P(SequentialRows, AreMadeAndCompile) {
  const CudaCompiler compiler(abi::typical_device(GetParam()));
  std::vector<schedule::ScheduledProgram> programs;
  for (const std::string& text : graphs()) {
    programs.push_back(scheduled(text, compiler.device()));
    std::size_t sequential = 0;
    for (const schedule::Step& step : programs.back().steps) {
      const auto& kernel = std::get<schedule::KernelStep>(step.action).kernel;
      if (std::get<schedule::LoopKernel>(kernel.body).sequential != 0) ++sequential;
    }
    EXPECT_EQ(sequential, 1U) << text;
    // The rows are read once.
    EXPECT_LE(programs.back().steps.size(), 2U) << text;
  }
  std::vector<CompileUnit> units;
  for (const schedule::ScheduledProgram& program : programs) {
    for (const schedule::Step& step : program.steps) {
      const auto& kernel = std::get<schedule::KernelStep>(step.action);
      units.push_back({&kernel.kernel, kernel.schedule, fmt::format("k{}", units.size())});
      (void)compiler.source(units.back());
    }
  }
  std::string why_not;
  if (!codegen::cuda::find_nvrtc(why_not)) GTEST_SKIP() << "no NVRTC: " << why_not;
  EXPECT_EQ(compiler.compile(units).kernels.size(), units.size());
}

INSTANTIATE_TEST_SUITE_P(Architectures, SequentialRows,
                         ::testing::Values("sm_80", "sm_90a", "sm_100"),
                         [](const auto& architecture) { return std::string(architecture.param); });

}  // namespace
}  // namespace inkle::driver
