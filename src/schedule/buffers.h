// Temporary buffers and loops over them, and the orders in which their dimensions lie in memory.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "abi/target.h"
#include "schedule/kernel.h"

namespace inkle::schedule {

using Order = std::vector<std::size_t>;  // dimensions, the slowest first

[[nodiscard]] std::vector<Expr> dense_strides(sym::Context& context, const std::vector<Expr>& sizes,
                                              const Order& order);

[[nodiscard]] Order row_major(std::size_t rank);

// (0, 2, ..., 1): batch, positions, channels. Row-major below three dimensions.
[[nodiscard]] Order channels_last(std::size_t rank);

// The order in which a buffer lies dense in memory, if it does; dimensions of size 1 go where they
// disturb least (their place in row-major order).
[[nodiscard]] std::optional<Order> dense_order(const loop::Buffer& buffer, sym::Context& context);

// A temporary with a unique name, on the device of `like`; it is not added to the program yet.
[[nodiscard]] loop::Buffer temporary(const loop::Program& program, loop::BufferId like,
                                     abi::DType dtype, std::vector<Expr> sizes);

// Appends a loop over each of `sizes` to the nest's; their variables.
std::vector<Expr> add_loops(loop::Nest& nest, std::span<const Expr> sizes, sym::Context& context);

[[nodiscard]] bool is_channels_last(const loop::Buffer& buffer, sym::Context& context);

// The order in which a convolution reads `image`, and makes its result: channels last, or as it
// lies.
[[nodiscard]] Order convolved_order(const loop::Buffer& image,
                                    const abi::ConvolutionLibrary& library, sym::Context& context);

}  // namespace inkle::schedule
