// Names of kernels: of what they are, not of where they stand.
#include "driver/kernel_names.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <unordered_map>

#include "base/hash.h"
#include "driver/pipeline.h"
#include "graph/text.h"
#include "ops/table.h"

namespace inkle::driver {
namespace {

using schedule::Kernel;

std::string words(const Kernel& kernel, std::string_view label) {
  const std::string name = KernelNames().name(kernel, label, "text");
  constexpr std::size_t kHash = 9;  // with its underscore
  EXPECT_EQ(name.substr(name.size() - kHash), KernelNames().name({}, "", "text").substr(6));
  return name.substr(0, name.size() - kHash);
}

TEST(KernelNames, AreTheSameInEveryProcess) {
  EXPECT_EQ(KernelNames().name({}, "softmax+softmax", "a kernel"), "softmax_6bbdc374");
}

TEST(KernelNames, WordsAreOfTheLabel) {
  const Kernel loops;
  EXPECT_EQ(words(loops, "softmax+softmax+softmax"), "softmax");
  EXPECT_EQ(words(loops, "gelu+add+gelu"), "gelu_add");
  EXPECT_EQ(words(loops, "copy+relu+output"), "relu");
  EXPECT_EQ(words(loops, "copy"), "copy");
  EXPECT_EQ(words(loops, "Weight  gradient"), "weight_gradient");
  EXPECT_EQ(words(loops, "mine::op.out"), "mine_op_out");
  EXPECT_EQ(words(loops, "2d"), "kernel_2d");
  EXPECT_EQ(words(loops, "_a_+é"), "a");
  EXPECT_EQ(words(loops, ""), "kernel");
  EXPECT_EQ(words(loops, "++"), "kernel");
  EXPECT_EQ(words(loops, "layer_norm_backward+threshold_backward+add+mul"),
            "layer_norm_backward_threshold_backward");
  EXPECT_EQ(words(loops, std::string(100, 'x')), std::string(40, 'x'));
}

TEST(KernelNames, TemplatesHaveTheirName) {
  Kernel gemm, attention;
  gemm.body = schedule::GemmKernel{};
  attention.body = schedule::AttentionKernel{};
  EXPECT_EQ(words(gemm, "matmul+gelu"), "gemm_gelu");
  EXPECT_EQ(words(attention, "attention"), "attention");
  std::get<schedule::AttentionKernel>(attention.body).is_gradient = true;
  EXPECT_EQ(words(attention, "attention"), "attention_gradient");
}

// Two texts whose hashes end in the same digits.
TEST(KernelNames, CollisionsAreTold) {
  std::unordered_map<std::uint32_t, std::string> texts;
  for (int n = 0;; ++n) {
    const std::string text = std::to_string(n);
    const auto [at, is_new] = texts.emplace(static_cast<std::uint32_t>(hash_bytes(text)), text);
    if (is_new) continue;
    KernelNames names;
    const std::string first = names.name({}, "add", at->second);
    EXPECT_EQ(names.name({}, "add", text), first + "_2");
    EXPECT_EQ(KernelNames().name({}, "add", text), first);
    return;
  }
}

// Kernels of a graph, by label.
std::map<std::string, std::string> kernels_of(std::string_view text) {
  Compiler compiler;
  const Compiled compiled =
      compiler.compile(graph::parse(text, "test.ir", ops::op_table()), CompileOptions{});
  std::map<std::string, std::string> names;
  std::set<std::string> all;
  for (const abi::KernelDecl& kernel : compiled.plan->kernels) {
    EXPECT_TRUE(all.insert(kernel.name).second) << kernel.name;
  }
  for (const StepReport& step : compiled.report.steps) names[step.label] = step.kernel;
  return names;
}

TEST(KernelNames, DoNotDependOnTheProgram) {
  const auto alone = kernels_of(R"(
graph @one(%x: f32[64,1000]) -> f32[64,1000] {
  %0: f32[64,1000] = softmax(%x, -1)
  return %0
}
)");
  const auto behind = kernels_of(R"(
graph @other(%y: f32[30,70], %x: f32[64,1000]) -> f32[30], f32[64,1000] {
  %0: f32[30] = amax(%y, [1], false)
  %1: f32[64,1000] = softmax(%x, -1)
  return %0, %1
}
)");
  const std::string softmax = "softmax+softmax+softmax";
  ASSERT_TRUE(alone.contains(softmax) && behind.contains(softmax));
  EXPECT_EQ(alone.at(softmax), behind.at(softmax));
  EXPECT_EQ(alone.at(softmax).substr(0, 8), "softmax_");
  EXPECT_EQ(behind.size(), 2U);
}

TEST(KernelNames, EqualKernelsHaveOne) {
  const auto graph = graph::parse(R"(
graph @twice(%x: f32[64,100], %w: f32[100,100]) -> f32[64,100] {
  %0: f32[64,100] = mm(%x, %w)
  %1: f32[64,100] = softmax(%0, -1)
  %2: f32[64,100] = mm(%1, %w)
  %3: f32[64,100] = softmax(%2, -1)
  %4: f32[64,100] = mm(%3, %w)
  return %4
}
)",
                                  "test.ir", ops::op_table());
  Compiler compiler;
  const Compiled compiled = compiler.compile(graph, CompileOptions{});
  const std::vector<StepReport>& steps = compiled.report.steps;
  ASSERT_EQ(steps.size(), 5U);
  EXPECT_EQ(steps[1].kernel.substr(0, 8), "softmax_");
  EXPECT_EQ(steps[1].kernel, steps[3].kernel);
  EXPECT_EQ(compiled.report.kernels, 1U);
}

}  // namespace
}  // namespace inkle::driver
