#include "capi/gpu_call.h"

#include <algorithm>

#include "base/error.h"
#include "capi/weights.h"

namespace inkle::capi {

using runtime::common::HostTensor;

HostTensor GpuCall::make_output(abi::DType dtype, std::span<const std::int64_t> sizes,
                                std::span<const std::int64_t> strides) {
  HostTensor made = results_.make_place(dtype, sizes, strides);
  made.view.data = allocate(span_bytes(dtype, sizes, strides));
  made.view.device = results_.location();
  return made;
}

runtime::cuda::Stream GpuCall::stream() { return results_.gpu_.stream; }

void* GpuCall::allocate(std::int64_t bytes) {
  GpuState& gpu = results_.gpu_;
  gpu.blocks.push_back(gpu.memory->take(bytes, gpu.stream, "a call"));
  return gpu.blocks.back().data();
}

abi::TensorView GpuCall::upload(const abi::TensorView& from) {
  const std::span<const std::int64_t> sizes(from.sizes, static_cast<std::size_t>(from.rank));
  const std::int64_t bytes = span_bytes(from.dtype, sizes, {from.strides, sizes.size()});
  abi::TensorView to = from;
  to.data = allocate(bytes);
  to.device = results_.location();
  results_.gpu_.memory->device().copy(to.data, from.data, bytes, stream());
  return to;
}

void GpuCall::copy(const abi::TensorView& from, const abi::TensorView& to) {
  if (!std::equal(from.strides, from.strides + from.rank, to.strides)) {
    unsupported("a copy from one layout to another needs PyTorch, which is not here");
  }
  const auto rank = static_cast<std::size_t>(from.rank);
  const std::int64_t bytes = span_bytes(from.dtype, {from.sizes, rank}, {from.strides, rank});
  results_.gpu_.memory->device().copy(to.data, from.data, bytes, stream());
}

std::optional<HostTensor> GpuCall::convolution(
    const runtime::cuda::ConvolutionArguments& arguments) {
  const bool is_missing = results_.gpu_.memory->device().convolutions() == nullptr;
  unsupported("a convolution of {} needs PyTorch, which is not here: cuDNN {}",
              abi::name_of(arguments.x.dtype),
              is_missing ? "is missing (libcudnn.so.9)" : "has no algorithm for it");
}

std::optional<HostTensor> GpuCall::attention(const runtime::cuda::AttentionArguments&) {
  unsupported("attention as one call needs PyTorch, which is not here");
}

}  // namespace inkle::capi
