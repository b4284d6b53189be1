// Checks that a CUDA program makes all of its tensors on the GPU.
#pragma once

#include "abi/device.h"
#include "schedule/scheduled.h"

namespace inkle::driver {

// Generated code cannot compute tensors of another device, such as CPU scalars in a CUDA program.
// Throws Unsupported naming all such nodes at once, so that a second attempt leaves them to eager.
void check_devices(const schedule::ScheduledProgram& scheduled, const abi::Device& device);

}  // namespace inkle::driver
