#include "cli/gpu_host.h"

#include <algorithm>

#include "base/error.h"

namespace inkle::cli {

using frontend::pt2::TensorData;
using runtime::common::HostTensor;
using runtime::cuda::Scope;

GpuMemory::~GpuMemory() {
  // A device that fails now has failed before, and whoever asked it for something has heard of
  // that.
  try {
    const Scope scope(device_);
    for (const auto& [bytes, at] : free_) device_.free(at);
    for (const auto& [bytes, at] : taken_) device_.free(at);
  } catch (const Error&) {
    return;
  }
}

void* GpuMemory::take(std::int64_t bytes) {
  bytes = std::max<std::int64_t>(bytes, 1);
  const auto found = free_.find(bytes);
  if (found != free_.end()) {
    taken_.emplace_back(*found);
    free_.erase(found);
  } else {
    const Scope scope(device_);
    taken_.emplace_back(bytes, device_.allocate(bytes));
  }
  return taken_.back().second;
}

void GpuMemory::give_back() {
  free_.insert(taken_.begin(), taken_.end());
  taken_.clear();
}

HostTensor GpuHost::make_output(abi::DType dtype, std::span<const std::int64_t> sizes,
                                std::span<const std::int64_t> strides) {
  Tensor& t = tensors_.emplace_back();
  t.sizes.assign(sizes.begin(), sizes.end());
  t.strides.assign(strides.begin(), strides.end());
  const auto bytes = frontend::pt2::span_bytes(dtype, sizes, strides);
  if (!bytes) user_error("a result of too many bytes");
  const abi::TensorView view{.data = memory_.take(*bytes),
                             .dtype = dtype,
                             .device = {abi::DeviceKind::cuda, memory_.device().index()},
                             .rank = static_cast<std::int32_t>(sizes.size()),
                             .sizes = t.sizes.data(),
                             .strides = t.strides.data()};
  return {&t, view};
}

void GpuHost::call(std::uint32_t target,
                   std::span<const runtime::common::EagerOperand> /*operands*/,
                   std::span<HostTensor> /*results*/) {
  unsupported("op number {} needs PyTorch's eager mode, which is not here", target);
}

TensorData GpuHost::fetch(const abi::TensorView& view) {
  const std::vector<std::int64_t> sizes(view.sizes, view.sizes + view.rank);
  const std::vector<std::int64_t> strides(view.strides, view.strides + view.rank);
  TensorData copy;
  copy.dtype = view.dtype;
  copy.sizes = sizes;
  copy.strides = strides;
  const std::int64_t bytes = frontend::pt2::span_bytes(view.dtype, sizes, strides).value_or(0);
  copy.owner = frontend::pt2::aligned_memory(static_cast<std::size_t>(bytes));
  copy.data = static_cast<std::byte*>(copy.owner.get());
  if (bytes > 0) {
    const Scope scope(memory_.device());
    memory_.device().copy(copy.data, view.data, bytes, nullptr);
    memory_.device().synchronize(nullptr);
  }
  return frontend::pt2::rearranged(copy.view());
}

void GpuHost::give(std::uint32_t position, const runtime::common::Output& output) {
  if (!keep_) return;
  results_.resize(std::max<std::size_t>(results_.size(), position + std::size_t{1}));
  switch (output.kind) {
    case abi::PlanOutput::Kind::none:
      return;
    case abi::PlanOutput::Kind::integer:
      results_[position] = output.integer;
      return;
    case abi::PlanOutput::Kind::buffer:
    case abi::PlanOutput::Kind::argument:
      results_[position] = output.view.device.kind == abi::DeviceKind::cpu
                               ? frontend::pt2::rearranged(output.view)
                               : fetch(output.view);
      return;
  }
}

void GpuHost::copy(const abi::TensorView& from, const abi::TensorView& to) {
  if (!std::equal(from.strides, from.strides + from.rank, to.strides)) {
    unsupported("a copy from one layout to another needs PyTorch, which is not here");
  }
  const auto bytes =
      frontend::pt2::span_bytes(from.dtype, {from.sizes, static_cast<std::size_t>(from.rank)},
                                {from.strides, static_cast<std::size_t>(from.rank)});
  memory_.device().copy(to.data, from.data, bytes.value_or(0), nullptr);
}

std::optional<HostTensor> GpuHost::convolution(
    const runtime::cuda::ConvolutionArguments& arguments) {
  const bool is_missing = memory_.device().convolutions() == nullptr;
  unsupported("a convolution of {} needs PyTorch, which is not here: cuDNN {}",
              abi::name_of(arguments.x.dtype),
              is_missing ? "is missing (libcudnn.so.9)" : "has no algorithm for it");
}

std::optional<HostTensor> GpuHost::attention(const runtime::cuda::AttentionArguments&) {
  unsupported("attention as one call needs PyTorch, which is not here");
}

}  // namespace inkle::cli
