#include "schedule/buffers.h"

#include <algorithm>
#include <numeric>

namespace inkle::schedule {

using loop::Buffer;

std::vector<Expr> dense_strides(sym::Context& context, const std::vector<Expr>& sizes,
                                const Order& order) {
  std::vector<Expr> strides(sizes.size(), context.constant(1));
  Expr running = context.constant(1);
  for (std::size_t i = order.size(); i-- > 0;) {
    strides[order[i]] = running;
    running = running * sizes[order[i]];
  }
  return strides;
}

Order row_major(std::size_t rank) {
  Order order(rank);
  std::iota(order.begin(), order.end(), std::size_t{0});
  return order;
}

Order channels_last(std::size_t rank) {
  Order order = row_major(rank);
  if (rank >= 3) std::rotate(order.begin() + 1, order.begin() + 2, order.end());
  return order;
}

std::optional<Order> dense_order(const Buffer& buffer, sym::Context& context) {
  if (!buffer.strides) return std::nullopt;
  const std::size_t rank = buffer.sizes.size();
  for (const Order& order : {row_major(rank), channels_last(rank)}) {
    const std::vector<Expr> expected = dense_strides(context, buffer.sizes, order);
    bool same = true;
    for (std::size_t d = 0; d < rank && same; ++d) {
      same = buffer.sizes[d].is_constant(1) || expected[d] == (*buffer.strides)[d];
    }
    if (same) return order;
  }
  return std::nullopt;
}

bool is_channels_last(const Buffer& buffer, sym::Context& context) {
  const auto order = dense_order(buffer, context);
  const std::size_t rank = buffer.sizes.size();
  if (!order || rank < 3) return false;
  const std::vector<Expr> expected = dense_strides(context, buffer.sizes, channels_last(rank));
  for (std::size_t d = 0; d < rank; ++d) {
    if (!buffer.sizes[d].is_constant(1) && !(expected[d] == (*buffer.strides)[d])) return false;
  }
  return true;
}

Order convolved_order(const Buffer& image, const abi::ConvolutionLibrary& library,
                      sym::Context& context) {
  const std::size_t rank = image.sizes.size();
  if (!library.keeps_order.has(image.dtype)) return channels_last(rank);
  return dense_order(image, context).value_or(row_major(rank));
}

Buffer temporary(const loop::Program& program, loop::BufferId like, abi::DType dtype,
                 std::vector<Expr> sizes) {
  Buffer buffer;
  buffer.name = "t" + std::to_string(program.buffers.size());
  buffer.dtype = dtype;
  buffer.device = program.buffers[like].device;
  buffer.sizes = std::move(sizes);
  return buffer;
}

std::vector<Expr> add_loops(loop::Nest& nest, std::span<const Expr> sizes, sym::Context& context) {
  std::vector<Expr> variables;
  for (const Expr size : sizes) {
    nest.dims.push_back({context.index(size), size});
    variables.push_back(nest.dims.back().variable);
  }
  return variables;
}

}  // namespace inkle::schedule
