// From a plan's convolution to what the library runs.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "abi/library_call.h"
#include "runtime/cuda/convolutions.h"

namespace inkle::runtime::cuda {

// Which operands of a call are the image, the weights and the result of the plain convolution that
// it is, or is a gradient of.
struct ConvolutionRoles {
  const abi::Operand *x, *w, *y;
};
[[nodiscard]] ConvolutionRoles roles_of(const abi::ConvolutionCall& call);

// Whether the library takes a call whatever its sizes: not f64, nor f32 unless that `takes_f32`
// (its precision is the host's to choose); a bias of the same type; as post-ops [residual] [relu];
// none of those with a gradient or a transposed convolution, which is the gradient of an image.
// Empty, or the reason.
[[nodiscard]] std::string why_not(const abi::ConvolutionCall& call, bool takes_f32);

// The shape of a call, its alignment that of offsets alone; nothing if the library does not run it,
// also for its sizes or strides: empty, a bias with steps, a residual that is expanded.
[[nodiscard]] std::optional<ConvolutionShape> plan_convolution(const abi::ConvolutionCall& call,
                                                               std::span<const std::int64_t> slots,
                                                               bool takes_f32 = false);

}  // namespace inkle::runtime::cuda
