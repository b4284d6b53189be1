// Schedules measured on a GPU: candidates of each kernel run on memory of zeros.
#pragma once

#include <span>
#include <vector>

#include "codegen/cuda/compiler.h"
#include "driver/measured.h"
#include "driver/target.h"
#include "runtime/cuda/device.h"

namespace inkle::driver {

// As Backend::tune. What `known` has for the same device, driver, kernel text, candidates and sizes
// is not measured, what is measured it gets.
[[nodiscard]] std::vector<schedule::Schedule> tune_blocks(
    std::span<const TuneCase> cases, const codegen::cuda::CudaCompiler& generator,
    runtime::cuda::Device& device, const MeasuredSchedules& known);

}  // namespace inkle::driver
