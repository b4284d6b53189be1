// Programs for a GPU on a machine without one: everything but the launch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "abi/targets.h"
#include "base/error.h"
#include "driver/null_device.h"
#include "runtime/common/errors.h"
#include "runtime/cuda/samples.h"

namespace inkle::driver {
namespace {

TEST_F(NullDeviceTest, MeasuresSchedules) {
  graph::Graph graph = graph::parse(R"(
graph @f(%x: bf16[1024,8192]) -> bf16[1024,8192], bf16[8192], bf16[1024,8192] {
  %0: bf16[1024,8192] = _softmax(%x, -1, false)
  %1: bf16[8192] = sum_dim(%0, [0])
  %2: bf16[1024,8192] = add(%x, %1)
  return %0, %1, %2
}
)",
                                    "test.ir", ops::op_table());
  for (std::uint32_t v = 0; v < graph.value_count(); ++v) {
    graph.type(graph::ValueId{v}).device = {abi::DeviceKind::cuda, 0};
  }
  CompileOptions options;
  options.tune = true;
  const Compiled tuned = compiler_.compile(graph, options);
  // Several candidates, each several times; where all are as fast, the model's choice stays.
  EXPECT_GT(device_->take_launches().size(), 100U);
  const Compiled plain = compiler_.compile(graph, {});
  EXPECT_EQ(abi::to_string(*tuned.plan), abi::to_string(*plain.plan));
  // What has been measured is remembered.
  (void)compiler_.compile(graph, options);
  EXPECT_TRUE(device_->take_launches().empty());
}

TEST_F(NullDeviceTest, RunsAllButTheLaunches) {
  compile(R"(
graph @block(%x: bf16[s0,64], %w: bf16[32,64] param, %b: bf16[32] param) -> bf16[s0,32] where s0 in 1..4096 {
  %0: bf16[64,32] = t(%w)
  %1: bf16[s0,32] = addmm(%b, %x, %0)           # model.py:2
  %2: bf16[s0,32] = gelu(%1)                    # model.py:3
  %3: bf16[s0,32] = softmax(%2, -1)             # model.py:4
  return %3
}
)");
  // The bias and the rounding are the product's; what follows is one kernel.
  ASSERT_EQ(compiled_.report.steps.size(), 2U);
  EXPECT_EQ(compiled_.report.steps[0].kind, "matmul");
  EXPECT_EQ(compiled_.report.steps[1].kind, "kernel");
  for (const std::int64_t rows : {7, 128, 7}) {
    NullHost host;
    run({{rows, 64}, {32, 64}, {32}}, host);
    EXPECT_THAT(host.given, ::testing::ElementsAre(abi::PlanOutput::Kind::buffer));
    EXPECT_GE(host.allocated, rows * 32 * 2);
  }
}

TEST_F(NullDeviceTest, KernelsAreBroughtUpEarly) {
  const auto early = [](std::string_view architecture, bool is_capturing) {
    const auto device = runtime::cuda::make_null_device(abi::typical_device(architecture));
    device->set_capturing(is_capturing);
    Compiler compiler(make_target(device));
    graph::Graph graph = graph::parse(R"(
graph @f(%x: f32[64,64]) -> f32[64,64] {
  %0: f32[64,64] = exp(%x)
  return %0
}
)",
                                      "test.ir", ops::op_table());
    for (std::uint32_t v = 0; v < graph.value_count(); ++v) {
      graph.type(graph::ValueId{v}).device = {abi::DeviceKind::cuda, 0};
    }
    const Compiled compiled = compiler.compile(std::move(graph), {});
    const auto executable = compiler.load(compiled);
    NullHost host;
    const std::vector<std::int64_t> sizes = {64, 64}, strides = {64, 1};
    const std::vector<abi::TensorView> views = {
        host.make_output(abi::DType::f32, sizes, strides).view};
    executable->run({.tensors = views, .host = &host});
    const auto launches = device->take_launches();
    EXPECT_EQ(launches.size(), 1U);
    return launches.at(0).shape.early;
  };
  EXPECT_TRUE(early("sm_90a", false));
  EXPECT_TRUE(early("sm_100", false));
  EXPECT_FALSE(early("sm_90a", true));
  EXPECT_FALSE(early("sm_80", false));
}

TEST_F(NullDeviceTest, WhatEagerReturnsIsCopiedForKernelsAlone) {
  compile(R"(
graph @returned(%x: f32[8,16]) -> f32[8,16] {
  %0: f32[8,16] = eager "aten::sort" 0 (%x)
  return %0
}
)");
  NullHost host;
  run({{8, 16}}, host);
  EXPECT_THAT(host.calls, ::testing::ElementsAre("eager"));
  EXPECT_EQ(host.last_given, host.made);  // it may be a view of an argument
  compile(R"(
graph @read(%x: f32[8,16]) -> f32[8,16] {
  %0: f32[8,16] = eager "aten::sort" 0 (%x)
  %1: f32[8,16] = relu(%0)
  return %1
}
)");
  NullHost other;
  run({{8, 16}}, other);
  EXPECT_THAT(other.calls, ::testing::ElementsAre("eager", "copy"));
}

// As the states of random numbers of attention, which FX may state elsewhere than eager has them.
TEST_F(NullDeviceTest, WhatEagerMakesOnAnotherDeviceIsForEagerAndResultsAlone) {
  compile(R"(
graph @returned(%x: f32[8,16]) -> f32[8,16], f32[8,16] {
  %0: f32[8,16] = eager "aten::foo" 0 (%x)
  %1: f32[8,16] = eager "aten::foo" 0 (%0)
  return %1, %0
}
)");
  NullHost host;
  host.made_on = abi::DeviceKind::cpu;
  run({{8, 16}}, host);
  EXPECT_THAT(host.calls, ::testing::ElementsAre("eager", "eager"));
  EXPECT_EQ(host.last_given, host.operand.data);  // the first op's
  compile(R"(
graph @read(%x: f32[8,16]) -> f32[8,16] {
  %0: f32[8,16] = eager "aten::foo" 0 (%x)
  %1: f32[8,16] = relu(%0)
  return %1
}
)");
  EXPECT_THROW(run({{8, 16}}, host), Unsupported);
}

TEST_F(NullDeviceTest, ResultsShareMemoryAsTheGraphSays) {
  compile(R"(
graph @shared(%x: f32[8,16]) -> f32[4,16], f32[4,16], f32[8,16], f32[8,16], f32[8,16], f32[16], f32[8] {
  %0: f32[8,16] = exp(%x)
  return %0 in 0, %0 in 0 at 64, %0 in 0, %0, %0 in 1, %x in %x at 32, %0 in 1 at 8
}
)");
  NullHost host;
  run({{8, 16}}, host);
  const auto& at = host.places;
  ASSERT_EQ(at.size(), 7U);
  const auto bytes = [&](std::size_t from, std::size_t to) {
    return static_cast<const std::byte*>(at[to].data) -
           static_cast<const std::byte*>(at[from].data);
  };
  EXPECT_EQ(at[0].handle, at[1].handle);
  EXPECT_EQ(bytes(0, 1), 64 * 4);
  EXPECT_EQ(bytes(0, 2), 0);
  EXPECT_NE(at[0].handle, at[3].handle);
  EXPECT_NE(at[0].handle, at[4].handle);
  EXPECT_NE(at[3].handle, at[4].handle);
  EXPECT_EQ(at[4].handle, at[6].handle);
  EXPECT_EQ(bytes(4, 6), 8 * 4);
  EXPECT_EQ(at[5].argument, 0);
  EXPECT_EQ(at[0].argument, -1);
}

TEST_F(NullDeviceTest, WhatIsWrittenToAnAlignedCopyIsWrittenBack) {
  const auto written = [&](std::string_view text) {
    compile(text);
    NullHost host;
    const std::vector<std::int64_t> sizes = {8, 16}, strides = {16, 1};
    abi::TensorView x = host.make_output(abi::DType::f32, sizes, strides).view;
    const abi::TensorView y = host.make_output(abi::DType::f32, sizes, strides).view;
    x.data = static_cast<std::byte*>(x.data) + 4;
    const std::vector<abi::TensorView> views = {x, y};
    executable_->run({.tensors = views, .host = &host});
    EXPECT_NE(host.last_allocated, nullptr);  // the copy
    return *static_cast<const std::byte*>(x.data) == std::byte{42};
  };
  EXPECT_TRUE(written(R"(
graph @stored(%x: f32[8,16], %y: f32[8,16]) -> f32[] {
  %0: f32[8,16] = eager "aten::foo" 0 (%y)
  %1: f32[] = sum(%0)
  %2: f32[8,16] = copy_(%x, %0)
  return %1
}
)"));
  EXPECT_FALSE(written(R"(
graph @read(%x: f32[8,16], %y: f32[8,16]) -> f32[8,16] {
  %0: f32[8,16] = eager "aten::foo" 0 (%y)
  %1: f32[8,16] = add(%x, %0)
  return %1
}
)"));
}

// What it draws may depend on the address.
TEST_F(NullDeviceTest, EagerGetsAnArgumentItselfWhereKernelsReadAnAlignedCopy) {
  compile(R"(
graph @dropped(%x: f32[8,16]) -> f32[8,16], f32[8,16] {
  %0: f32[8,16] = eager "aten::foo" 0 (%x)
  %1: f32[8,16] = relu(%x)
  return %0, %1
}
)");
  NullHost host, memory;
  const std::vector<std::int64_t> sizes = {8, 16}, strides = {16, 1};
  abi::TensorView x = memory.make_output(abi::DType::f32, sizes, strides).view;
  x.data = static_cast<std::byte*>(x.data) + 4;
  const std::vector<abi::TensorView> views = {x};
  executable_->run({.tensors = views, .host = &host});
  EXPECT_NE(host.last_allocated, nullptr);  // the copy
  EXPECT_EQ(host.operand.data, x.data);
}

// Kernels may have written to the copy since: the op sees that.
TEST_F(NullDeviceTest, EagerGetsWhatItMadeItselfWhereKernelsReadAnAlignedCopy) {
  compile(R"(
graph @dropped(%x: f32[8,16]) -> f32[8,16], f32[8,16] {
  %0: f32[8,16] = eager "aten::foo" 0 (%x)
  %1: f32[8,16] = relu(%0)
  %2: f32[8,16] = eager "aten::foo" 0 (%0)
  return %2, %1
}
)");
  NullHost host;
  run({{8, 16}}, host);
  EXPECT_THAT(host.calls, ::testing::ElementsAre("eager", "eager"));
  ASSERT_NE(host.last_allocated, nullptr);
  EXPECT_NE(static_cast<const void*>(host.last_allocated), host.operand.data);
  EXPECT_NE(reinterpret_cast<std::uintptr_t>(host.operand.data) % 16, 0U);  // at its odd place
  compile(R"(
graph @returned(%x: f32[8,16]) -> f32[8,16], f32[8,16], f32[8,16] {
  %0: f32[8,16] = eager "aten::foo" 0 (%x)
  %1: f32[8,16] = relu(%0)
  %2: f32[8,16] = eager "aten::foo" 0 (%0)
  return %2, %1, %0
}
)");
  NullHost other;
  run({{8, 16}}, other);
  EXPECT_THAT(other.calls, ::testing::ElementsAre("eager", "copy", "eager"));
}

TEST_F(NullDeviceTest, ViewsThatEagerMakesAreNotRecorded) {
  const auto why_not = [&](std::string_view text) {
    compile(text);
    return executable_->why_not_captured();
  };
  EXPECT_THAT(why_not(R"(
graph @view(%x: f32[8,16]) -> f32[8,16] {
  %0: f32[8,16] = eager "inkle::view" 0 (%x)
  return %0
}
)"),
              ::testing::HasSubstr("a view"));
  EXPECT_EQ(why_not("graph @nothing(%x: f32[8]) -> f32[8] {\n  return %x in %x\n}\n"),
            "nothing is launched");
  EXPECT_EQ(why_not(R"(
graph @sorted(%x: f32[8,16]) -> f32[8,16] {
  %0: f32[8,16] = eager "aten::sort" 0 (%x)
  return %0
}
)"),
            "");
}

constexpr std::string_view kNumbers = R"(
graph @numbers(%x: f32[8,16], %cpu_a: f64[], %cpu_b: f64[], %cpu_c: f32[], %cpu_i: i64[40]) -> f32[8,16], f32[40,16] {
  %0: f32[8,16] = mul(%x, %cpu_a)
  %1: f32[8,16] = add(%0, %cpu_b)
  %2: f32[8,16] = add(%1, %cpu_c)
  %3: f32[40,16] = index(%x, [%cpu_i])
  return %2, %3
}
)";

TEST_F(NullDeviceTest, SmallArgumentsOfTheCpuGoOverAtOnce) {
  compile(kNumbers);
  NullHost host;
  for (int call = 0; call < 2; ++call) {
    static_cast<void>(device_->take_copies());
    run({{8, 16}, {}, {}, {}, {40}}, host);
    EXPECT_THAT(device_->take_copies(), ::testing::ElementsAre(3 * 16, 320));
  }
}

TEST_F(NullDeviceTest, ArgumentsOfTheCpuAreRecordedWhereKernelsAloneReadThem) {
  compile(kNumbers);
  EXPECT_EQ(executable_->why_not_captured(), "");
  const auto why_not = [&](std::string_view text) {
    compile(text);
    return executable_->why_not_captured();
  };
  EXPECT_THAT(why_not(R"(
graph @written(%x: f32[16], %cpu_a: f32[]) -> f32[16] {
  %0: f32[16] = mul(%x, %cpu_a)
  %1: f32[16] = eager "aten::foo" 0 (%x, %cpu_a)
  return %0
}
)"),
              ::testing::HasSubstr("cpu_a is a CPU tensor"));
  EXPECT_THAT(why_not(R"(
graph @weight(%x: f32[16], %cpu_a: f32[] param) -> f32[16] {
  %0: f32[16] = mul(%x, %cpu_a)
  return %0
}
)"),
              ::testing::HasSubstr("cpu_a is a CPU tensor"));
}

TEST_F(NullDeviceTest, CopiesOnTheDeviceStandForArgumentsOfTheCpu) {
  compile(kNumbers);
  NullHost host;
  const std::vector<std::int64_t> rows = {8, 16}, of_rows = {16, 1}, one = {1};
  const std::vector<std::int64_t> many = {40};
  std::vector<abi::TensorView> views = {
      host.make_output(abi::DType::f32, rows, of_rows).view,
      host.make_output(abi::DType::f64, {}, {}).view,
      host.make_output(abi::DType::f64, {}, {}).view,
      host.make_output(abi::DType::f32, {}, {}).view,
      host.make_output(abi::DType::i64, many, one).view,
  };
  for (std::size_t i = 1; i < views.size(); ++i) views[i].device = {abi::DeviceKind::cpu, 0};
  static_cast<void>(device_->take_copies());
  executable_->run({.tensors = views, .host = &host, .has_device_copies = true});
  EXPECT_THAT(device_->take_copies(), ::testing::IsEmpty());
}

// An op in eager read it at its address on the host as a CUDA tensor: an illegal access.
TEST_F(NullDeviceTest, PartsOfCpuTensorsAreCpuTensors) {
  compile(R"(
graph @part(%x: f32[16], %cpu_i: i64[40]) -> f32[16], i64[10] {
  %0: f32[16] = exp(%x)
  %1: i64[10] = slice(%cpu_i, 0, 8, 18, 1)
  %2: i64[10] = eager "aten::foo" 0 (%1)
  return %0, %2
}
)");
  NullHost host;
  run({{16}, {40}}, host);
  EXPECT_EQ(host.operand.device.kind, abi::DeviceKind::cpu);
}

TEST_F(NullDeviceTest, PartsOfConstantsAreOnTheCpu) {
  compile(R"(
graph @part(%x: f32[16]) -> f32[16], i64[2] {
  %c0: i64[3] = literal [3, 4, 5]
  %0: f32[16] = exp(%x)
  %1: i64[2] = slice(%c0, 0, 1, 3, 1)
  %2: i64[2] = eager "aten::foo" 0 (%1)
  return %0, %2
}
)");
  NullHost host;
  run({{16}}, host);
  EXPECT_EQ(host.operand.device.kind, abi::DeviceKind::cpu);
  EXPECT_EQ(*static_cast<const std::int64_t*>(host.operand.data), 4);
}

// The copy has one element, and lies as the number does.
TEST_F(NullDeviceTest, CopiesOfNumbersOfTheCpuAreOnTheDevice) {
  compile(R"(
graph @filled(%x: f32[1,1], %cpu_a: f32[]) -> f32[1,1] {
  %0: f32[1,1] = fill(%x, %cpu_a)
  %1: f32[1,1] = eager "aten::foo" 0 (%0)
  return %1
}
)");
  NullHost host;
  run({{1, 1}, {}}, host);
  EXPECT_EQ(host.operand.device.kind, abi::DeviceKind::cuda);
}

TEST(Samples, LieInTheirTensorsEachInAnotherPart) {
  using runtime::cuda::kSamples;
  using runtime::cuda::sampled_word;
  for (const std::uint64_t words : {65ULL, 127ULL, 128ULL, 1000003ULL, 1ULL << 34}) {
    for (std::uint32_t s = 0; s < 3 * kSamples; ++s) {
      const std::uint64_t slice = words / kSamples;
      EXPECT_EQ(sampled_word(s, words) / slice, s % kSamples) << words;
    }
  }
  for (std::uint32_t s = 0; s < kSamples; ++s) EXPECT_EQ(sampled_word(kSamples + s, 5), s);
}

TEST_F(NullDeviceTest, ArgumentsAreChecked) {
  compile(R"(
graph @one(%x: f32[8,64]) -> f32[8,64] {
  %0: f32[8,64] = exp(%x)
  return %0
}
)");
  NullHost host;
  EXPECT_THROW(run({{8, 63}}, host), runtime::common::WrongArgument);
}

}  // namespace
}  // namespace inkle::driver
