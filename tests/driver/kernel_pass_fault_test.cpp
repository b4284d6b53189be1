// Kernel passes of a device in a compilation: option fail_stage for each of them, what it ends
// with, and that the compiler goes on to compile; the text before the first and after each.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "driver/pipeline.h"
#include "graph/text.h"
#include "kernel/passes.h"
#include "ops/table.h"

namespace inkle::driver {
namespace {

graph::Graph softmax(abi::DeviceKind device) {
  graph::Graph graph = graph::parse(R"(
graph @rows(%x: f32[8,64]) -> f32[8,64] {
  %0: f32[8,64] = softmax(%x, 1)
  return %0
}
)",
                                    "test.ir", ops::op_table());
  for (std::uint32_t v = 0; v < graph.value_count(); ++v) {
    graph.type(graph::ValueId{v}).device = {device, 0};
  }
  for (graph::Output& output : graph.outputs) output.view.device = {device, 0};
  return graph;
}

std::string error_of(Compiler& compiler, const std::string& stage) {
  const bool gpu = compiler.location().kind == abi::DeviceKind::cuda;
  CompileOptions options;
  options.only_text = gpu;
  options.fail_stage = stage;
  try {
    (void)compiler.compile(softmax(compiler.location().kind), options);
  } catch (const InternalError& error) {
    return error.what();
  }
  return "";
}

void every_pass_fails(Compiler& compiler, std::span<const kernel::KernelPass> passes) {
  for (const kernel::KernelPass& pass : passes) {
    const std::string stage = fmt::format("codegen/{}", pass.name);
    const std::string thrown = error_of(compiler, stage);
    EXPECT_THAT(thrown, testing::HasSubstr(fmt::format("in kernel pass {}", pass.name)));
    EXPECT_THAT(thrown, testing::HasSubstr("in stage codegen"));
    const std::string wrong = error_of(compiler, stage + "/wrong");
    EXPECT_THAT(wrong, testing::HasSubstr(fmt::format("after {}: kernel @", pass.name)));
    EXPECT_THAT(wrong, testing::HasSubstr("is used where it is not defined"));
    // Kernels that are known by now fail all the same in the next round.
    EXPECT_EQ(error_of(compiler, ""), "");
  }
  EXPECT_THROW((void)error_of(compiler, "codegen/nothing"), UserError);
}

TEST(KernelPassFault, OnACpu) {
  Compiler compiler;
  every_pass_fails(compiler, kernel::cpu_passes());
}

TEST(KernelPassFault, OnAGpu) {
  Compiler compiler(make_null_target("sm_90a"));
  every_pass_fails(compiler, kernel::gpu_passes());
}

std::vector<std::string> passes_dumped(Compiler& compiler) {
  std::vector<std::string> names;
  CompileOptions options;
  options.only_text = compiler.location().kind == abi::DeviceKind::cuda;
  options.dump_kernel_pass = [&](std::string_view pass, const std::string& text) {
    names.emplace_back(pass);
    EXPECT_THAT(text, testing::StartsWith("kernel @"));
  };
  (void)compiler.compile(softmax(compiler.location().kind), options);
  return names;
}

void every_pass_is_dumped(Compiler& compiler, std::span<const kernel::KernelPass> passes) {
  std::vector<std::string> expected = {"expand"};
  for (const kernel::KernelPass& pass : passes) expected.emplace_back(pass.name);
  EXPECT_EQ(passes_dumped(compiler), expected);
  // The kernel is known by now.
  EXPECT_EQ(passes_dumped(compiler), expected);
}

TEST(KernelPassText, OfACpu) {
  Compiler compiler;
  every_pass_is_dumped(compiler, kernel::cpu_passes());
}

TEST(KernelPassText, OfAGpu) {
  Compiler compiler(make_null_target("sm_90a"));
  every_pass_is_dumped(compiler, kernel::gpu_passes());
}

}  // namespace
}  // namespace inkle::driver
