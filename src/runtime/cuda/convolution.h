// From a plan's convolution to what the library runs.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "abi/library_call.h"
#include "runtime/cuda/convolutions.h"

namespace inkle::runtime::cuda {

// The shape of a call, its alignment that of offsets alone; nothing if the library does not run it:
// f32 and f64 (whose precision is the host's to choose), transposed, a gradient, empty, a bias of
// another type, or other post-ops than [residual] [relu].
[[nodiscard]] std::optional<ConvolutionShape> plan_convolution(const abi::ConvolutionCall& call,
                                                               std::span<const std::int64_t> slots);

}  // namespace inkle::runtime::cuda
