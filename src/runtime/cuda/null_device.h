// A GPU that runs nothing: memory is the host's, kernels and GEMMs are checked and counted, not
// run. For tests of everything but the launch, on machines without a GPU.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/cuda/convolutions.h"
#include "runtime/cuda/device.h"

namespace inkle::runtime::cuda {

// What was asked of a null device, in order; for tests.
struct NullLaunch {
  // The kernel's entry, "gemm m n k batch", or "convolution" and what is fused to it.
  std::string what;
  LaunchShape shape;
};

class NullDevice : public Device {
 public:
  [[nodiscard]] virtual std::vector<NullLaunch> take_launches() = 0;
  // The convolutions that were foreseen, and those that were then asked for, in order.
  [[nodiscard]] virtual std::vector<ConvolutionShape> foreseen() = 0;
  [[nodiscard]] virtual std::vector<ConvolutionShape> asked() = 0;
  // From now on the device has no library for convolutions.
  virtual void lose_convolutions() = 0;
  virtual void set_capturing(bool is_capturing) = 0;
  // Bytes of each copy that was asked for since this was asked last.
  [[nodiscard]] virtual std::vector<std::int64_t> take_copies() = 0;
  // Tensors that were described to the copy engine since this was asked last.
  [[nodiscard]] virtual std::vector<MapShape> take_maps() = 0;
  // That have been made and not freed.
  [[nodiscard]] virtual int events() const = 0;
  // From now on a launch of this shape takes so many microseconds, between two recorded events;
  // before, none takes any time.
  virtual void set_clock(std::function<double(const LaunchShape&)> microseconds) = 0;
};

[[nodiscard]] std::shared_ptr<NullDevice> make_null_device(abi::DeviceDescription description);

}  // namespace inkle::runtime::cuda
