// Hand-made plans and a host that lives on the heap, for tests and benchmarks of the executor.
#pragma once

#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/cpu/executor.h"

namespace inkle::runtime::cpu {

using abi::DType;
using Shape = std::vector<std::int64_t>;

inline Shape dense_strides(const Shape& sizes) {
  Shape strides(sizes.size());
  std::int64_t step = 1;
  for (std::size_t d = sizes.size(); d-- > 0;) {
    strides[d] = step;
    step *= sizes[d];
  }
  return strides;
}

// Builds a plan of constant sizes; slots are made on demand.
class PlanBuilder {
 public:
  PlanBuilder() {
    plan.name = "test";
    slot(0);
  }

  abi::Slot slot(std::int64_t value) {
    for (const abi::SizeInstruction& i : plan.size_program) {
      if (i.op == abi::SizeInstruction::Op::constant && i.immediate == value) return i.result;
    }
    return instruction({.op = abi::SizeInstruction::Op::constant, .immediate = value});
  }
  abi::Slot instruction(abi::SizeInstruction i) {
    i.result = plan.slot_count++;
    plan.size_program.push_back(i);
    return i.result;
  }
  std::vector<abi::Slot> slots(const Shape& values) {
    std::vector<abi::Slot> result;
    for (const std::int64_t v : values) result.push_back(slot(v));
    return result;
  }

  abi::PlanBuffer argument(std::string name, const Shape& sizes, Shape strides = {},
                           DType dtype = DType::f32, bool is_parameter = false) {
    if (strides.empty()) strides = dense_strides(sizes);
    plan.arguments.push_back({.name = name,
                              .dtype = dtype,
                              .sizes = slots(sizes),
                              .strides = slots(strides),
                              .is_parameter = is_parameter});
    return buffer(abi::BufferDecl::Kind::argument, std::move(name), sizes, strides, dtype,
                  static_cast<std::uint32_t>(plan.arguments.size() - 1));
  }
  abi::PlanBuffer output(std::string name, const Shape& sizes, Shape strides = {},
                         DType dtype = DType::f32) {
    if (strides.empty()) strides = dense_strides(sizes);
    const auto position = static_cast<std::uint32_t>(plan.outputs.size());
    const abi::PlanBuffer b =
        buffer(abi::BufferDecl::Kind::output, std::move(name), sizes, strides, dtype, position);
    plan.outputs.push_back({.kind = abi::PlanOutput::Kind::buffer,
                            .index = b,
                            .sizes = slots(sizes),
                            .strides = slots(strides),
                            .offset = slot(0)});
    return b;
  }
  abi::PlanBuffer arena(std::string name, const Shape& sizes, std::uint32_t first,
                        std::uint32_t last, DType dtype = DType::f32) {
    const abi::PlanBuffer b = buffer(abi::BufferDecl::Kind::arena, std::move(name), sizes,
                                     dense_strides(sizes), dtype, 0);
    plan.buffers[b].first_use = first;
    plan.buffers[b].last_use = last;
    return b;
  }
  abi::PlanBuffer buffer(abi::BufferDecl::Kind kind, std::string name, const Shape& sizes,
                         const Shape& strides, DType dtype, std::uint32_t index) {
    std::int64_t last = 0;
    bool empty = false;
    for (std::size_t d = 0; d < sizes.size(); ++d) {
      last += (sizes[d] - 1) * strides[d];
      empty |= sizes[d] == 0;
    }
    plan.buffers.push_back({.kind = kind,
                            .dtype = dtype,
                            .index = index,
                            .sizes = slots(sizes),
                            .strides = slots(strides),
                            .bytes = slot(empty ? 0 : (last + 1) * abi::size_of(dtype)),
                            .name = std::move(name)});
    return static_cast<abi::PlanBuffer>(plan.buffers.size() - 1);
  }
  abi::Operand operand(abi::PlanBuffer b) {
    return {.buffer = b,
            .dtype = plan.buffers[b].dtype,
            .offset = slot(0),
            .sizes = plan.buffers[b].sizes,
            .strides = plan.buffers[b].strides};
  }
  abi::Operand operand(abi::PlanBuffer b, const Shape& sizes, const Shape& strides,
                       std::int64_t offset = 0) {
    return {.buffer = b,
            .dtype = plan.buffers[b].dtype,
            .offset = slot(offset),
            .sizes = slots(sizes),
            .strides = slots(strides)};
  }
  void launch(abi::KernelFunction function, std::vector<abi::PlanBuffer> buffers,
              const Shape& sizes, std::int64_t extent, std::int64_t grain = 1,
              std::int64_t scratch = abi::kStatusBytes) {
    plan.kernels.push_back({.name = "k" + std::to_string(plan.kernels.size())});
    code.functions.push_back(function);
    abi::Launch l{.kernel = static_cast<std::uint32_t>(plan.kernels.size() - 1),
                  .buffers = std::move(buffers),
                  .sizes = slots(sizes),
                  .extent = slot(extent),
                  .grain = slot(grain),
                  .scratch_bytes = slot(scratch)};
    plan.steps.push_back({.action = std::move(l), .source = "model.py:7"});
  }
  void call(abi::LibraryCall call, std::string source = "model.py:9") {
    plan.steps.push_back({.action = std::move(call), .source = std::move(source)});
  }
  abi::PlanAndCode done() {
    return {std::make_shared<const abi::Plan>(plan), std::make_shared<const abi::Code>(code)};
  }

  abi::Plan plan;
  abi::Code code;
};

// Tensors on the heap; remembers what it was given.
class HeapHost : public Host {
 public:
  struct Tensor {
    DType dtype;
    Shape sizes, strides;
    std::unique_ptr<std::byte, void (*)(void*)> data{nullptr, std::free};
    abi::TensorView view() {
      return {.data = data.get(),
              .dtype = dtype,
              .device = {},
              .rank = static_cast<std::int32_t>(sizes.size()),
              .sizes = sizes.data(),
              .strides = strides.data()};
    }
  };

  HostTensor make_output(DType dtype, std::span<const std::int64_t> sizes,
                         std::span<const std::int64_t> strides) override {
    if (out_of_memory) throw std::bad_alloc();
    Tensor& t = tensors.emplace_back();
    t.dtype = dtype;
    t.sizes.assign(sizes.begin(), sizes.end());
    t.strides.assign(strides.begin(), strides.end());
    std::int64_t last = 0;
    for (std::size_t d = 0; d < sizes.size(); ++d) last += (sizes[d] - 1) * strides[d];
    const std::int64_t bytes = std::max<std::int64_t>(last + 1, 1) * abi::size_of(dtype);
    t.data.reset(static_cast<std::byte*>(
        std::aligned_alloc(64, static_cast<std::size_t>((bytes + 63) / 64 * 64))));
    return {.handle = &t, .view = t.view()};
  }
  void call(std::uint32_t target, std::span<const EagerOperand> operands,
            std::span<HostTensor> results) override {
    eager(target, operands, results);
  }
  void give(std::uint32_t position, const Output& output) override {
    if (outputs.size() <= position) outputs.resize(position + 1);
    outputs[position] = output;
    Shape& sizes = kept.emplace_back(output.view.sizes, output.view.sizes + output.view.rank);
    Shape& strides = kept.emplace_back(output.view.strides, output.view.strides + output.view.rank);
    outputs[position].view.sizes = sizes.data();
    outputs[position].view.strides = strides.data();
  }
  const float* floats(std::size_t position) const {
    return static_cast<const float*>(outputs[position].view.data);
  }

  bool out_of_memory = false;
  std::function<void(std::uint32_t, std::span<const EagerOperand>, std::span<HostTensor>)> eager;
  std::deque<Tensor> tensors;
  std::deque<Shape> kept;
  std::vector<Output> outputs;
};

// Arguments of a call that own their memory, 64-byte aligned.
class Arguments {
 public:
  float* add(const Shape& sizes, Shape strides = {}, DType dtype = DType::f32) {
    if (strides.empty()) strides = dense_strides(sizes);
    const HostTensor t = host_.make_output(dtype, sizes, strides);
    views.push_back(t.view);
    return static_cast<float*>(t.view.data);
  }
  // Reproducible values in [-1, 1).
  float* random(const Shape& sizes, Shape strides = {}, std::uint64_t seed = 1) {
    if (strides.empty()) strides = dense_strides(sizes);
    std::int64_t last = 0;
    for (std::size_t d = 0; d < sizes.size(); ++d) last += (sizes[d] - 1) * strides[d];
    float* data = add(sizes, strides);
    std::uint64_t state = seed * 0x9e3779b97f4a7c15ULL + views.size();
    for (std::int64_t i = 0; i <= last; ++i) {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      data[i] = static_cast<float>(static_cast<std::int32_t>(state >> 33)) / 1073741824.0F - 1.0F;
    }
    return data;
  }
  std::vector<abi::TensorView> views;

 private:
  HeapHost host_;
};

}  // namespace inkle::runtime::cpu
