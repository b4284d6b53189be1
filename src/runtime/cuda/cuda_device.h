// The GPU behind the CUDA driver.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/cuda/device.h"

namespace inkle::runtime::cuda {

// Number of GPUs; 0, and why, where the driver is missing or does not start.
[[nodiscard]] int device_count(std::string& why_not);

// Of each GPU, "sm_90a", opening none of them; empty, and why, as above.
[[nodiscard]] std::vector<std::string> architectures_here(std::string& why_not);

// GPU number `index`, the same object for the life of the process. Throws Unsupported.
[[nodiscard]] std::shared_ptr<Device> open_device(std::int32_t index);

}  // namespace inkle::runtime::cuda
