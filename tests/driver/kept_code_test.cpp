// What a compiler keeps of the code that it makes: object files of the CPU, text alone of a GPU.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "codegen/cuda/compiler.h"
#include "driver/pipeline.h"
#include "graph/text.h"
#include "kernel/parse.h"
#include "kernel/verify.h"
#include "ops/table.h"

namespace inkle::driver {
namespace {

std::string graph_text(std::string_view device) {
  return fmt::format(
      "graph @g(%x: f32[8,16]{0}) -> f32[8]{0} {{\n"
      "  %0: f32[8,16]{0} = exp(%x)\n"
      "  %1: f32[8]{0} = sum_dim(%0, [1], false)\n"
      "  return %1\n}}\n",
      device);
}

graph::Graph parsed(std::string_view device) {
  return graph::parse(graph_text(device), "in", ops::op_table());
}

TEST(KeptCode, ObjectsAreKeptWhereAsked) {
  Compiler compiler;
  CompileOptions options;
  EXPECT_TRUE(compiler.compile(parsed(""), options).report.code.empty());
  options.keep_objects = true;
  Compiler other;
  const Compiled first = other.compile(parsed(""), options);
  ASSERT_EQ(first.report.code.size(), 1U);
  ASSERT_NE(first.report.code[0].object, nullptr);
  EXPECT_GT(first.report.code[0].object->size(), 100U);
  EXPECT_TRUE(first.report.code[0].ir.empty());
  const Compiled again = other.compile(parsed(""), options);
  EXPECT_EQ(again.report.kernels_reused, 1U);
  EXPECT_EQ(*again.report.code[0].object, *first.report.code[0].object);
}

TEST(KeptCode, TextAloneIsNotCompiled) {
  Compiler compiler(make_null_target("sm_90a"));
  CompileOptions options;
  options.keep_code = options.only_text = true;
  const Compiled compiled = compiler.compile(parsed("@cuda:0"), options);
  ASSERT_EQ(compiled.report.code.size(), 1U);
  EXPECT_NE(compiled.report.code[0].ir.find("__global__"), std::string::npos);
  ASSERT_FALSE(compiled.code->images.empty());
  for (const auto& image : compiled.code->images) EXPECT_TRUE(image.data->empty());
}

// Text of the kernel IR that parses back, is right, and has nothing of the program: its name is the
// kernel's, and no line of the user's stands in it.
void expect_kernel_ir(const abi::Plan& plan) {
  ASSERT_EQ(plan.kernels.size(), 1U);
  for (const abi::KernelDecl& kernel : plan.kernels) {
    const kernel::ParsedKernel parsed = kernel::parse_kernel(kernel.text, kernel.name);
    EXPECT_EQ(kernel::to_string(parsed.kernel), kernel.text);
    EXPECT_EQ(parsed.kernel.name, kernel.name);
    EXPECT_TRUE(parsed.kernel.sources.empty());
    kernel::verify(parsed.kernel);
  }
}

TEST(KeptCode, PlansHoldTheKernelIrOfTheirCode) {
  Compiler compiler;
  const Compiled first = compiler.compile(parsed(""), {});
  expect_kernel_ir(*first.plan);
  ASSERT_EQ(first.report.schedules.size(), 1U);
  EXPECT_NE(first.report.schedules[0].find("\nschedule "), std::string::npos);
  const Compiled again = compiler.compile(parsed(""), {});
  EXPECT_EQ(again.report.kernels_reused, 1U);
  EXPECT_EQ(again.plan->kernels[0].text, first.plan->kernels[0].text);
}

TEST(KeptCode, PlansOfAGpuDoSoWhereThereIsCode) {
  if (codegen::cuda::nvrtc_version().empty()) GTEST_SKIP() << "no NVRTC";
  Compiler compiler(make_null_target("sm_90a"));
  const Compiled compiled = compiler.compile(parsed("@cuda:0"), {});
  expect_kernel_ir(*compiled.plan);
  EXPECT_NE(compiled.plan->kernels[0].text.find("thread t0"), std::string::npos);
}

}  // namespace
}  // namespace inkle::driver
