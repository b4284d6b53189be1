// The host of one call on a GPU: memory of the device, on a stream of the caller's.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "capi/results.h"
#include "runtime/cuda/host.h"

namespace inkle::capi {

class GpuCall final : public runtime::cuda::DeviceHost {
 public:
  // Of `results`, on the stream that they begin with; both outlive this object.
  explicit GpuCall(Results& results) : results_(results) {}

  runtime::common::HostTensor make_output(abi::DType dtype, std::span<const std::int64_t> sizes,
                                          std::span<const std::int64_t> strides) override;
  void begin_steps() override { results_.begin_steps(); }
  void call(std::uint32_t target, std::span<const runtime::common::EagerOperand> operands,
            std::span<runtime::common::HostTensor> results) override {
    results_.call(target, operands, results);
  }
  void give(std::uint32_t position, const runtime::common::Output& output) override {
    results_.give(position, output);
  }

  runtime::cuda::Stream stream() override;
  void* allocate(std::int64_t bytes) override;
  // With the results.
  void release(runtime::common::Handle /*handle*/) override {}
  // Throws Unsupported where the layouts differ.
  void copy(const abi::TensorView& from, const abi::TensorView& to) override;
  [[nodiscard]] bool has_convolutions() const override { return false; }
  // Throw Unsupported: what the device's own libraries do not run needs a framework.
  std::optional<runtime::common::HostTensor> convolution(
      const runtime::cuda::ConvolutionArguments& arguments) override;
  std::optional<runtime::common::HostTensor> attention(
      const runtime::cuda::AttentionArguments& arguments) override;

  // A tensor of the caller's memory, on the device in the same layout; the program may write there.
  [[nodiscard]] abi::TensorView upload(const abi::TensorView& from);

 private:
  Results& results_;
};

}  // namespace inkle::capi
