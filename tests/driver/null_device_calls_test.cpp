// Calls of a GPU's libraries, and programs over nothing, on a machine without one.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "driver/null_device.h"

namespace inkle::driver {
namespace {

TEST_F(NullDeviceTest, MergesProductsOfOneOperand) {
  compile(R"(
graph @qkv(%x: bf16[2,16,64], %q: bf16[64,64] param, %k: bf16[64,64] param, %v: bf16[64,64] param, %a: bf16[64] param, %b: bf16[64] param, %c: bf16[64] param) -> bf16[2,2,16,32] {
  %0: bf16[32,64] = view(%x, [32, 64])
  %1: bf16[64,64] = t(%q)
  %2: bf16[32,64] = addmm(%a, %0, %1)
  %3: bf16[2,16,2,32] = reshape(%2, [2, 16, 2, 32])
  %4: bf16[2,2,16,32] = transpose(%3, 1, 2)
  %5: bf16[64,64] = t(%k)
  %6: bf16[32,64] = addmm(%b, %0, %5)
  %7: bf16[2,16,2,32] = reshape(%6, [2, 16, 2, 32])
  %8: bf16[2,2,16,32] = transpose(%7, 1, 2)
  %9: bf16[64,64] = t(%v)
  %10: bf16[32,64] = addmm(%c, %0, %9)
  %11: bf16[2,16,2,32] = reshape(%10, [2, 16, 2, 32])
  %12: bf16[2,2,16,32] = transpose(%11, 1, 2)
  %13: bf16[2,2,16,32] = sdpa(%4, %8, %12, none, 0.0, false, 0.125)
  return %13
}
)");
  // What is put together is made once; attention reads the parts as they lie.
  std::vector<std::string> kinds;
  for (std::size_t s = 0; s < compiled_.report.steps.size(); ++s) {
    if (!compiled_.plan->steps[s].prepare) kinds.push_back(compiled_.report.steps[s].kind);
  }
  EXPECT_THAT(kinds, testing::ElementsAre("matmul", "attention"));
  NullHost host;
  run({{2, 16, 64}, {64, 64}, {64, 64}, {64, 64}, {64}, {64}, {64}}, host);
  EXPECT_THAT(host.calls, testing::ElementsAre("attention"));
}

TEST_F(NullDeviceTest, ConvolutionAndAttentionAreTheHosts) {
  compile(R"(
graph @block(%q: bf16[2,4,16,8], %k: bf16[2,4,16,8], %v: bf16[2,4,16,8]) -> bf16[2,4,16,8] {
  %0: bf16[2,4,16,8] = sdpa(%q, %k, %v)
  %1: bf16[2,4,16,8] = relu(%0)
  return %1
}
)");
  NullHost host;
  run({{2, 4, 16, 8}, {2, 4, 16, 8}, {2, 4, 16, 8}}, host);
  EXPECT_THAT(host.calls, ::testing::ElementsAre("attention"));
  EXPECT_EQ(host.released, 1);
}

// The host's memory is gone after a call.
TEST_F(NullDeviceTest, WhatTheHostPreparesIsKept) {
  compile(R"(
graph @positions(%x: f32[2,3,8,8], %w: f32[3,3,1,1] param) -> f32[2,3,8,8] {
  %0: f32[2,3,8,8] = full_like(%x, 0.5)
  %1: f32[2,3,8,8] = convolution(%0, %w, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
  %2: f32[2,3,8,8] = mul(%x, %1)
  return %2
}
)");
  NullHost host;
  const std::vector<abi::TensorView> views = {
      host.make_output(abi::DType::f32, std::vector<std::int64_t>{2, 3, 8, 8},
                       std::vector<std::int64_t>{192, 64, 8, 1})
          .view,
      host.make_output(abi::DType::f32, std::vector<std::int64_t>{3, 3, 1, 1},
                       std::vector<std::int64_t>{3, 1, 1, 1})
          .view};
  std::vector<std::int64_t> versions(views.size(), 1);
  const auto calls = [&] {
    host.calls.clear();
    (void)device_->take_launches();
    executable_->run({.tensors = views, .versions = versions, .host = &host});
    for (const auto& launch : device_->take_launches()) host.calls.push_back(launch.what);
    return host.calls;
  };
  const std::vector<std::string> first = calls();
  ASSERT_GE(first.size(), 3U);
  EXPECT_THAT(std::vector(first.begin(), first.begin() + 2),
              ::testing::ElementsAre("convolution", "copy"));
  EXPECT_THAT(calls(), ::testing::ElementsAre(first.back()));
  ++versions[1];
  EXPECT_EQ(calls(), first);
}

TEST_F(NullDeviceTest, RowsThatAreLookedUpCompile) {
  compile(R"(
graph @rows(%t: f32[10,64] param, %i: i64[4]) -> f32[4,64] {
  %0: f32[4,64] = embedding(%t, %i)
  %1: f32[4,64] = mul(%0, 2.0)
  return %1
}
)");
  NullHost host;
  run({{10, 64}, {4}}, host);
  EXPECT_EQ(host.given.size(), 1U);
}

TEST_F(NullDeviceTest, SumsOverNothingCompile) {
  compile(R"(
graph @nothing(%x: f32[5,0], %y: f32[0,5], %z: f32[5,1]) -> f32[5], f32[], f32[5], f32[0,5], f32[5,1] {
  %0: f32[5] = sum_dim(%x, [1])
  %1: f32[] = sum_dim(%x, [0, 1])
  %2: f32[5] = sum_dim(%y, [0])
  %3: f32[0,5] = softmax(%y, -1)
  %4: f32[5,1] = cumsum(%z, 1)
  return %0, %1, %2, %3, %4
}
)");
  NullHost host;
  run({{5, 0}, {0, 5}, {5, 1}}, host);
  EXPECT_EQ(host.given.size(), 5U);
}

TEST_F(NullDeviceTest, ProductsOverNothingAreZerosThatOthersAddTo) {
  compile(R"(
graph @nothing(%b: f32[3], %x: f32[2,0], %w: f32[0,3], %r: f32[2,3]) -> f32[2,3], f32[2,3] {
  %0: f32[2,3] = addmm(%b, %x, %w)
  %1: f32[2,3] = mm(%x, %w)
  %2: f32[2,3] = add(%1, %r)
  return %0, %2
}
)");
  NullHost host;
  run({{3}, {2, 0}, {0, 3}, {2, 3}}, host);
  EXPECT_EQ(host.given.size(), 2U);
}

TEST_F(NullDeviceTest, RowsThatRepeatAreCopiedForProducts) {
  compile(R"(
graph @repeated(%g: f32[], %x: f32[s0,4], %w: f32[3,4], %q: f32[s1,s0,4]) -> f32[3,4], f32[s0,4], f32[s1,s0,3] where s0 in 2..64 hint 6, s1 in 2..8 hint 2 {
  %0: f32[s0,3]{0,0} = expand(%g, [s0, 3])
  %1: f32[3,s0]{0,0} = t(%0)
  %2: f32[3,4] = mm(%1, %x)
  %3: f32[s0,4] = mm(%0, %w)
  %4: f32[4,3] = t(%w)
  %5: f32[s1,4,3]{0,1,4} = expand(%4, [s1, 4, 3])
  %6: f32[s1,s0,3] = bmm(%q, %5)
  return %2, %3, %6
}
)");
  NullHost host;
  run({{}, {6, 4}, {3, 4}, {2, 6, 4}}, host);
  run({{}, {9, 4}, {3, 4}, {5, 9, 4}}, host);
  EXPECT_EQ(host.given.size(), 6U);
}

TEST_F(NullDeviceTest, WhatIsPreparedMayHaveNoElements) {
  compile(R"(
graph @nothing(%x: f32[2,0], %y: f32[0,3]) -> f32[2,3] {
  %0: f32[0,3] = full_like(%y, 1.0)
  %1: f32[2,3] = mm(%x, %0)
  return %1
}
)");
  for (int call = 0; call < 3; ++call) {
    NullHost host;
    run({{2, 0}, {0, 3}}, host);
    EXPECT_EQ(host.given.size(), 1U);
  }
}

TEST_F(NullDeviceTest, ConvolutionsAreTheLibrarys) {
  constexpr std::string_view kText = R"(
graph @block(%x: bf16[2,16,8,8]{1024,1,128,16}, %w: bf16[16,16,3,3]{144,1,48,16} param, %s: bf16[16] param, %b: bf16[16] param, %m: bf16[16] param, %v: bf16[16] param) -> bf16[2,16,8,8]{1024,1,128,16} {
  %0: bf16[2,16,8,8] = convolution(%x, %w, none, [1, 1], [1, 1], [1, 1], false, [0, 0], 1)
  %1: bf16[2,16,8,8], %2: bf16[0], %3: bf16[0] = _native_batch_norm_legit_no_training(%0, %s, %b, %m, %v, 0.1, 1e-05)
  %4: bf16[2,16,8,8] = add(%1, %x)
  %5: bf16[2,16,8,8]{1024,1,128,16} = relu(%4)
  return %5
}
)";
  const std::vector<std::vector<std::int64_t>> sizes = {{2, 16, 8, 8}, {16, 16, 3, 3}, {16},
                                                        {16},          {16},           {16}};
  const std::vector<std::vector<std::int64_t>> strides = {{1024, 1, 128, 16}, {144, 1, 48, 16}};
  compile(kText);
  NullHost host;
  std::vector<abi::TensorView> views;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::vector<std::int64_t> one = {1};
    views.push_back(
        host.make_output(abi::DType::bf16, sizes[i], i < strides.size() ? strides[i] : one).view);
  }
  std::vector<std::int64_t> versions(views.size(), 1);
  const auto launched = [&] {
    (void)device_->take_launches();
    executable_->run({.tensors = views, .versions = versions, .host = &host});
    std::vector<std::string> result;
    for (const auto& launch : device_->take_launches()) result.push_back(launch.what);
    return result;
  };
  // Weights are prepared once, and again when one of them has changed.
  const std::string call = "convolution bias residual relu";
  EXPECT_THAT(launched(), ::testing::ElementsAre(::testing::_, call));
  EXPECT_THAT(launched(), ::testing::ElementsAre(call));
  // What the first call asks the library for is what was foreseen while kernels were compiled.
  EXPECT_EQ(device_->foreseen().size(), 1U);
  EXPECT_EQ(device_->foreseen(), device_->asked());
  ++versions[3];
  EXPECT_FALSE(executable_->is_prepared({.tensors = views, .versions = versions}));
  EXPECT_THAT(launched(), ::testing::ElementsAre(::testing::_, call));
  EXPECT_TRUE(executable_->is_prepared({.tensors = views, .versions = versions}));
  EXPECT_THAT(launched(), ::testing::ElementsAre(call));
  // Written to without another version: the next call sees it on the device, the one after it acts.
  for (std::int64_t i = 0; i < 16 * 16 * 9; ++i) static_cast<std::uint16_t*>(views[1].data)[i] = 7;
  EXPECT_TRUE(executable_->is_prepared({.tensors = views, .versions = versions}));
  EXPECT_THAT(launched(), ::testing::ElementsAre(call));
  EXPECT_FALSE(executable_->is_prepared({.tensors = views, .versions = versions}));
  EXPECT_THAT(launched(), ::testing::ElementsAre(::testing::_, call));
  EXPECT_THAT(launched(), ::testing::ElementsAre(call));
  EXPECT_TRUE(executable_->is_prepared({.tensors = views, .versions = versions}));
  EXPECT_THAT(host.calls, ::testing::IsEmpty());
}

TEST_F(NullDeviceTest, ForeseesConvolutionsWhoseSizesAreKnown) {
  const auto foreseen_of = [&](std::string_view type, std::string_view rows, std::string_view where,
                               const CompileOptions& options) {
    graph::Graph graph = graph::parse(fmt::format(R"(
graph @one(%x: {0}[{1},16,8,8], %w: {0}[16,16,3,3] param) -> {0}[{1},16,8,8]{2} {{
  %0: {0}[{1},16,8,8] = convolution(%x, %w, none, [1, 1], [1, 1], [1, 1], false, [0, 0], 1)
  %1: {0}[{1},16,8,8] = exp(%0)
  return %1
}}
)",
                                                  type, rows, where),
                                      "test.ir", ops::op_table());
    for (std::uint32_t v = 0; v < graph.value_count(); ++v) {
      graph.type(graph::ValueId{v}).device = {abi::DeviceKind::cuda, 0};
    }
    const std::size_t before = device_->foreseen().size();
    try {
      (void)compiler_.compile(std::move(graph), options);
    } catch (const InternalError&) {
      EXPECT_EQ(options.fail_stage, "codegen");
    }
    return device_->foreseen().size() - before;
  };
  EXPECT_EQ(foreseen_of("bf16", "2", "", {}), 1U);
  EXPECT_EQ(foreseen_of("f16", "2", "", {}), 1U);
  EXPECT_EQ(foreseen_of("f32", "2", "", {}), 0U);  // the host's
  EXPECT_EQ(foreseen_of("bf16", "s0", " where s0 in 2..64", {}), 0U);
  // A program that cannot be compiled afterwards leaves the device as it was.
  CompileOptions fails;
  fails.fail_stage = "codegen";
  EXPECT_EQ(foreseen_of("bf16", "4", "", fails), 1U);
  EXPECT_EQ(foreseen_of("bf16", "4", "", {}), 1U);
  device_->lose_convolutions();
  EXPECT_EQ(foreseen_of("bf16", "8", "", {}), 0U);
}

}  // namespace
}  // namespace inkle::driver
