// A host without any framework for programs on a GPU: memory of the device, results copied back.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "cli/host.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/host.h"

namespace inkle::cli {

// Memory of a device that is used again by later calls; freed with this object.
class GpuMemory {
 public:
  explicit GpuMemory(runtime::cuda::Device& device) : device_(device) {}
  ~GpuMemory();
  GpuMemory(const GpuMemory&) = delete;
  GpuMemory& operator=(const GpuMemory&) = delete;

  [[nodiscard]] void* take(std::int64_t bytes);
  // All that was taken since the last time may be taken again.
  void give_back();
  [[nodiscard]] runtime::cuda::Device& device() const { return device_; }

 private:
  runtime::cuda::Device& device_;
  std::multimap<std::int64_t, void*> free_;
  std::vector<std::pair<std::int64_t, void*>> taken_;
};

// Serves one call on the device's default stream; results() are what it gave, in host memory.
class GpuHost final : public runtime::cuda::DeviceHost {
 public:
  explicit GpuHost(GpuMemory& memory, bool keep = true) : memory_(memory), keep_(keep) {}
  ~GpuHost() override { memory_.give_back(); }
  GpuHost(const GpuHost&) = delete;
  GpuHost& operator=(const GpuHost&) = delete;

  runtime::common::HostTensor make_output(abi::DType dtype, std::span<const std::int64_t> sizes,
                                          std::span<const std::int64_t> strides) override;
  // Throws Unsupported: nothing here can run an op in eager.
  void call(std::uint32_t target, std::span<const runtime::common::EagerOperand> operands,
            std::span<runtime::common::HostTensor> results) override;
  void give(std::uint32_t position, const runtime::common::Output& output) override;

  runtime::cuda::Stream stream() override { return nullptr; }
  void* allocate(std::int64_t bytes) override { return memory_.take(bytes); }
  void release(runtime::common::Handle /*handle*/) override {}
  // Throws Unsupported where the layouts differ.
  void copy(const abi::TensorView& from, const abi::TensorView& to) override;
  [[nodiscard]] bool has_convolutions() const override { return false; }
  // Throw Unsupported: what the device's own libraries do not run needs a framework.
  std::optional<runtime::common::HostTensor> convolution(
      const runtime::cuda::ConvolutionArguments& arguments) override;
  std::optional<runtime::common::HostTensor> attention(
      const runtime::cuda::AttentionArguments& arguments) override;

  [[nodiscard]] std::vector<PlainHost::Result> take_results() { return std::move(results_); }

 private:
  struct Tensor {
    std::vector<std::int64_t> sizes, strides;
  };
  [[nodiscard]] frontend::pt2::TensorData fetch(const abi::TensorView& view);

  GpuMemory& memory_;
  bool keep_;
  std::deque<Tensor> tensors_;
  std::vector<PlainHost::Result> results_;
};

}  // namespace inkle::cli
