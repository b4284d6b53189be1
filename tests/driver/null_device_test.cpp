// Programs for a GPU on a machine without one: everything but the launch.
#include "runtime/cuda/null_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>
#include <string>

#include "base/error.h"
#include "codegen/cuda/compiler.h"
#include "driver/pipeline.h"
#include "graph/text.h"
#include "ops/table.h"
#include "runtime/common/errors.h"
#include "runtime/cuda/executable.h"
#include "runtime/cuda/host.h"
#include "runtime/cuda/samples.h"

namespace inkle::driver {
namespace {

using runtime::common::HostTensor;
using runtime::cuda::AttentionArguments;
using runtime::cuda::ConvolutionArguments;

constexpr std::string_view kArchitecture = "sm_90a";

// Tensors on the heap; notes what it is asked for.
class NullHost final : public runtime::cuda::DeviceHost {
 public:
  HostTensor make_output(abi::DType dtype, std::span<const std::int64_t> sizes,
                         std::span<const std::int64_t> strides) override {
    Tensor& t = tensors_.emplace_back();
    t.sizes.assign(sizes.begin(), sizes.end());
    t.strides.assign(strides.begin(), strides.end());
    std::int64_t elements = 1;
    for (std::size_t d = 0; d < sizes.size(); ++d) elements += (sizes[d] - 1) * strides[d];
    t.data.resize(static_cast<std::size_t>(elements * abi::size_of(dtype) + 512));
    const abi::TensorView view{.data = t.data.data(),
                               .dtype = dtype,
                               .device = {abi::DeviceKind::cuda, 0},
                               .rank = static_cast<std::int32_t>(sizes.size()),
                               .sizes = t.sizes.data(),
                               .strides = t.strides.data()};
    return {&t, view};
  }
  // One result like the first operand, at an odd place.
  void call(std::uint32_t, std::span<const runtime::common::EagerOperand> operands,
            std::span<HostTensor> results) override {
    calls.push_back("eager");
    results[0] = same(operands[0].view);
    results[0].view.data = static_cast<std::byte*>(results[0].view.data) + 4;
    made = results[0].view.data;
    if (last_allocated != nullptr) *last_allocated = std::byte{42};
  }
  void give(std::uint32_t, const runtime::common::Output& output) override {
    given.push_back(output.kind);
    last_given = output.view.data;
  }
  runtime::cuda::Stream stream() override { return this; }
  void* allocate(std::int64_t bytes) override {
    allocated += bytes;
    Tensor& t = tensors_.emplace_back();
    t.data.resize(static_cast<std::size_t>(bytes));
    last_allocated = t.data.data();
    return last_allocated;
  }
  void release(runtime::common::Handle) override { ++released; }
  void copy(const abi::TensorView&, const abi::TensorView&) override { calls.push_back("copy"); }
  std::optional<HostTensor> convolution(const ConvolutionArguments& a) override {
    calls.push_back(a.relu ? "convolution relu" : "convolution");
    return same(a.y);
  }
  std::optional<HostTensor> attention(const AttentionArguments& a) override {
    calls.push_back(a.mask ? "attention mask" : "attention");
    return same(a.out);
  }

  std::vector<std::string> calls;
  std::vector<abi::PlanOutput::Kind> given;
  const void* made = nullptr;  // by the last op in eager
  const void* last_given = nullptr;
  std::byte* last_allocated = nullptr;  // ops in eager write to it
  std::int64_t allocated = 0;
  int released = 0;

 private:
  struct Tensor {
    std::vector<std::byte> data;
    std::vector<std::int64_t> sizes, strides;
  };
  HostTensor same(const abi::TensorView& v) {
    const auto rank = static_cast<std::size_t>(v.rank);
    return make_output(v.dtype, {v.sizes, rank}, {v.strides, rank});
  }
  std::deque<Tensor> tensors_;
};

class NullDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string why_not;
    if (!codegen::cuda::find_nvrtc(why_not)) GTEST_SKIP() << why_not;
  }

  // Compiles for the null device; all tensors are of the GPU, but for arguments named cpu...
  void compile(std::string_view text) {
    graph::Graph graph = graph::parse(text, "test.ir", ops::op_table());
    for (std::uint32_t v = 0; v < graph.value_count(); ++v) {
      graph.type(graph::ValueId{v}).device = {abi::DeviceKind::cuda, 0};
    }
    for (const graph::Input& input : graph.inputs) {
      if (input.name.starts_with("cpu")) graph.type(input.value).device = {abi::DeviceKind::cpu, 0};
    }
    compiled_ = compiler_.compile(std::move(graph), {});
    executable_ = compiler_.load(compiled_.plan);
  }

  // Calls the program with tensors of these sizes, dense.
  std::vector<std::string> run(const std::vector<std::vector<std::int64_t>>& sizes,
                               NullHost& host) {
    std::vector<abi::TensorView> views;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      std::vector<std::int64_t> strides(sizes[i].size(), 1);
      for (std::size_t d = sizes[i].size(); d-- > 1;) strides[d - 1] = strides[d] * sizes[i][d];
      const abi::PlanArgument& argument = compiled_.plan->arguments[i];
      views.push_back(host.make_output(argument.dtype, sizes[i], strides).view);
      views.back().device = argument.device;
    }
    executable_->run({.tensors = views, .host = &host});
    return {};
  }

  std::shared_ptr<runtime::cuda::NullDevice> device_ =
      runtime::cuda::make_null_device(codegen::cuda::typical_device(kArchitecture));
  Compiler compiler_{make_target(device_)};
  Compiled compiled_;
  std::unique_ptr<runtime::common::Executable> executable_;
};

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

TEST_F(NullDeviceTest, MeasuresSchedules) {
  graph::Graph graph = graph::parse(R"(
graph @f(%x: bf16[1024,8192]) -> bf16[1024,8192], bf16[8192], bf16[1024,8192] {
  %0: bf16[1024,8192] = _softmax(%x, -1, false)
  %1: bf16[8192] = sum_dim(%x, [0])
  %2: bf16[1024,8192] = exp(%x)
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
    const auto device =
        runtime::cuda::make_null_device(codegen::cuda::typical_device(architecture));
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
    const auto executable = compiler.load(compiled.plan);
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

TEST_F(NullDeviceTest, ViewsThatEagerMakesAreNotRecorded) {
  const auto why_not = [&](std::string_view text) {
    compile(text);
    return executable_->why_not_recorded();
  };
  EXPECT_THAT(why_not(R"(
graph @view(%x: f32[8,16]) -> f32[8,16] {
  %0: f32[8,16] = eager "inkle::view" 0 (%x)
  return %0
}
)"),
              ::testing::HasSubstr("a view"));
  EXPECT_EQ(why_not("graph @nothing(%x: f32[8]) -> f32[8] {\n  return %x\n}\n"),
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
  EXPECT_EQ(executable_->why_not_recorded(), "");
  const auto why_not = [&](std::string_view text) {
    compile(text);
    return executable_->why_not_recorded();
  };
  EXPECT_THAT(why_not(R"(
graph @written(%x: f32[16], %cpu_a: f32[]) -> f32[16] {
  %0: f32[16] = mul(%x, %cpu_a)
  %1: f32[16] = eager "aten::foo" 0 (%x, %cpu_a)
  return %0
}
)"),
              ::testing::HasSubstr("cpu_a is a tensor of the CPU"));
  EXPECT_THAT(why_not(R"(
graph @weight(%x: f32[16], %cpu_a: f32[] param) -> f32[16] {
  %0: f32[16] = mul(%x, %cpu_a)
  return %0
}
)"),
              ::testing::HasSubstr("cpu_a is a tensor of the CPU"));
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
