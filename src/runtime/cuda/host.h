// What the caller of a plan on a GPU provides beyond common::Host: a stream, memory of the device,
// and the ops that are best left to the framework's own libraries.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "abi/library_call.h"
#include "abi/tensor_view.h"
#include "runtime/common/host.h"
#include "runtime/cuda/device.h"

namespace inkle::runtime::cuda {

// y = act(convolution(x, w) + bias + residual); abi::ConvolutionCall has the meaning of the rest.
struct ConvolutionArguments {
  abi::TensorView x, w, y;
  std::optional<abi::TensorView> bias;
  std::optional<abi::TensorView> residual;  // as y
  bool relu = false;
  const abi::ConvolutionCall* call = nullptr;
};

struct AttentionArguments {
  abi::TensorView q, k, v, out;
  std::optional<abi::TensorView> mask;
  double scale = 1;
  bool is_causal = false;
};

// Every function but those of common::Host is called between begin_steps() and the first give().
class DeviceHost : public common::Host {
 public:
  // The stream that the call's work is queued on; asked once, before all others.
  [[nodiscard]] virtual Stream stream() = 0;
  // Memory of the device, 256-byte aligned, for the length of the call: later work of the stream
  // may use it again. Throws UserError when there is none.
  [[nodiscard]] virtual void* allocate(std::int64_t bytes) = 0;
  // The tensor, made by this host, is not needed by later steps.
  virtual void release(common::Handle handle) = 0;
  // Nor is tensor argument `number`; called only where Call::donates_arguments.
  virtual void release_argument(std::uint32_t /*number*/) {}
  // to[i...] = from[i...]; same dtype and sizes, any strides and devices.
  virtual void copy(const abi::TensorView& from, const abi::TensorView& to) = 0;
  // Whether it has convolutions of its own: else those of f32 are the device's library's, too.
  [[nodiscard]] virtual bool has_convolutions() const { return true; }
  // A tensor with the sizes of y (of out), or none if the result was written there.
  [[nodiscard]] virtual std::optional<common::HostTensor> convolution(
      const ConvolutionArguments& arguments) = 0;
  [[nodiscard]] virtual std::optional<common::HostTensor> attention(
      const AttentionArguments& arguments) = 0;
};

}  // namespace inkle::runtime::cuda
