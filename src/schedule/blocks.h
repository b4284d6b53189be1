// The schedule of a loop kernel on a GPU.
#pragma once

#include "abi/device.h"
#include "schedule/kernel.h"

namespace inkle::schedule {

// The model's choice. May move an outer loop to the end, where lanes run along it.
[[nodiscard]] Schedule choose_blocks(Kernel& kernel, const abi::DeviceDescription& device,
                                     sym::Context& context);

}  // namespace inkle::schedule
