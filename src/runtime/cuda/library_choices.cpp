#include "runtime/cuda/library_choices.h"

#include <fmt/format.h>

namespace inkle::runtime::cuda {

std::string device_of(const abi::DeviceDescription& device) {
  return fmt::format("{}, {}, {} multiprocessors, driver {}", device.name, device.architecture,
                     device.parallelism, device.driver_version);
}

}  // namespace inkle::runtime::cuda
