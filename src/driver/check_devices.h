// Programs of a GPU make all of their tensors there.
#pragma once

#include "abi/device.h"
#include "schedule/scheduled.h"

namespace inkle::driver {

// What computes a tensor of another device is not ours: on a GPU, sizes and scalars of the CPU.
// Throws Unsupported naming all of it at once, as it goes to eager in another attempt.
void check_devices(const schedule::ScheduledProgram& scheduled, const abi::Device& device);

}  // namespace inkle::driver
