// Post-ops as plain loops: for what oneDNN does not support, and for contractions with K = 0.
#pragma once

#include <span>
#include <vector>

#include "runtime/cpu/onednn_primitive.h"

namespace inkle::runtime::cpu {

// op(x) in f32, or op(x, operand) for add and mul; special values as in eager.
[[nodiscard]] float apply(const PostOpDescription& op, float x, float operand);

// data = post_ops(data), elementwise over `destination` (f32 or bf16, any strides). operands has
// one pointer an add or mul, in order; their sizes are the destination's or 1.
void apply_post_ops(std::span<const PostOpDescription> post_ops,
                    const TensorDescription& destination, void* data,
                    std::span<void* const> operands);

// data[..., c, ...] = bias[c] (0 if null) where c runs over dimension `channel`.
void fill_bias(const TensorDescription& destination, void* data, std::size_t channel,
               const TensorDescription* bias, const void* bias_data);

}  // namespace inkle::runtime::cpu
