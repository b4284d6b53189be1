// Schedules measured on a GPU: candidates of each kernel run on memory of zeros.
#pragma once

#include <span>
#include <vector>

#include "codegen/cuda/compiler.h"
#include "driver/target.h"
#include "runtime/cuda/device.h"

namespace inkle::driver {

// As Target::tune.
[[nodiscard]] std::vector<schedule::Schedule> tune_blocks(
    std::span<const TuneCase> cases, const codegen::cuda::CudaCompiler& generator,
    runtime::cuda::Device& device);

}  // namespace inkle::driver
