// Programs for a GPU on a machine without one: a host that notes what it is asked for, and what
// compiles for the null device and runs there.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "abi/targets.h"
#include "codegen/cuda/compiler.h"
#include "driver/pipeline.h"
#include "graph/text.h"
#include "ops/table.h"
#include "runtime/cuda/executable.h"
#include "runtime/cuda/host.h"
#include "runtime/cuda/null_device.h"

namespace inkle::driver {

// Tensors on the heap; notes what it is asked for.
class NullHost final : public runtime::cuda::DeviceHost {
 public:
  runtime::common::HostTensor make_output(abi::DType dtype, std::span<const std::int64_t> sizes,
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
            std::span<runtime::common::HostTensor> results) override {
    calls.push_back("eager");
    operand = operands[0].view;
    results[0] = same(operands[0].view);
    results[0].view.data = static_cast<std::byte*>(results[0].view.data) + 4;
    if (made_on) results[0].view.device.kind = *made_on;
    made = results[0].view.data;
    if (last_allocated != nullptr) *last_allocated = std::byte{42};
  }
  void give(std::uint32_t, const runtime::common::Output& output) override {
    given.push_back(output.kind);
    last_given = output.view.data;
    places.push_back({output.argument, output.handle, output.view.data});
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
  std::optional<runtime::common::HostTensor> convolution(
      const runtime::cuda::ConvolutionArguments& a) override {
    calls.push_back(a.relu ? "convolution relu" : "convolution");
    return same(a.y);
  }
  std::optional<runtime::common::HostTensor> attention(
      const runtime::cuda::AttentionArguments& a) override {
    calls.push_back(a.mask ? "attention mask" : "attention");
    return same(a.out);
  }

  // Where a result lies: in an argument, or in the tensor behind a handle.
  struct Place {
    std::int32_t argument = -1;
    runtime::common::Handle handle = nullptr;
    const void* data = nullptr;
  };

  std::vector<std::string> calls;
  std::vector<abi::PlanOutput::Kind> given;
  std::vector<Place> places;   // of results, in order
  const void* made = nullptr;  // by the last op in eager
  std::optional<abi::DeviceKind> made_on;
  const void* last_given = nullptr;
  abi::TensorView operand;  // the first of the last op in eager; its sizes do not outlive the call
  std::byte* last_allocated = nullptr;  // ops in eager write to it
  std::int64_t allocated = 0;
  int released = 0;

 private:
  struct Tensor {
    std::vector<std::byte> data;
    std::vector<std::int64_t> sizes, strides;
  };
  runtime::common::HostTensor same(const abi::TensorView& v) {
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

  // Compiles for the null device; all are CUDA tensors but arguments named cpu..., literals, and
  // slices of them.
  void compile(std::string_view text) {
    graph::Graph graph = graph::parse(text, "test.ir", ops::op_table());
    for (std::uint32_t v = 0; v < graph.value_count(); ++v) {
      graph.type(graph::ValueId{v}).device = {abi::DeviceKind::cuda, 0};
    }
    for (graph::Output& output : graph.outputs) output.view.device = {abi::DeviceKind::cuda, 0};
    for (const graph::Input& input : graph.inputs) {
      if (input.name.starts_with("cpu")) graph.type(input.value).device = {abi::DeviceKind::cpu, 0};
    }
    for (const auto& [literal, data] : graph.constants) {
      graph.type(literal).device = {abi::DeviceKind::cpu, 0};
    }
    for (const graph::Node& node : graph.nodes) {
      if (node.op->name != "slice") continue;
      graph.type(node.results[0]).device =
          graph.type(std::get<graph::ValueId>(node.args[0])).device;
    }
    compiled_ = compiler_.compile(std::move(graph), {});
    executable_ = compiler_.load(compiled_);
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
      runtime::cuda::make_null_device(abi::typical_device("sm_90a"));
  Compiler compiler_{make_target(device_)};
  Compiled compiled_;
  std::unique_ptr<runtime::common::Executable> executable_;
};

}  // namespace inkle::driver
