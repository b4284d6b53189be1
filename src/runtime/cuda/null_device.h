// A GPU that runs nothing: memory is the host's, kernels and products are checked and counted, not
// run. For tests of everything but the launch, on machines without a GPU.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/cuda/device.h"

namespace inkle::runtime::cuda {

// What was asked of a null device, in order; for tests.
struct NullLaunch {
  std::string what;  // the kernel's entry, or "gemm m n k batch"
  LaunchShape shape;
};

class NullDevice : public Device {
 public:
  [[nodiscard]] virtual std::vector<NullLaunch> take_launches() = 0;
};

[[nodiscard]] std::shared_ptr<NullDevice> make_null_device(abi::DeviceDescription description);

}  // namespace inkle::runtime::cuda
