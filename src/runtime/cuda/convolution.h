// From a plan's convolution to what the library runs.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "abi/library_call.h"
#include "runtime/cuda/convolutions.h"

namespace inkle::runtime::cuda {

// Which operands of a call are the image, the weights and the result of the plain convolution that
// it is, or is a gradient of.
struct ConvolutionRoles {
  const abi::Operand *x, *w, *y;
};
[[nodiscard]] ConvolutionRoles roles_of(const abi::ConvolutionCall& call);

// The shape of a call, its alignment that of offsets alone; nothing if the library does not run it:
// f64, and f32 unless that `takes_f32` (its precision is the host's to choose), empty, a bias of
// another type, other post-ops than [residual] [relu], or any of those with a gradient or a
// transposed convolution, which is the gradient of an image.
[[nodiscard]] std::optional<ConvolutionShape> plan_convolution(const abi::ConvolutionCall& call,
                                                               std::span<const std::int64_t> slots,
                                                               bool takes_f32 = false);

}  // namespace inkle::runtime::cuda
