#include "schedule/layout.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/error.h"
#include "loop/builder.h"
#include "schedule/buffers.h"
#include "schedule/inline.h"
#include "schedule/linear.h"

namespace inkle::schedule {
namespace {

using loop::Access;
using loop::Buffer;
using loop::BufferId;
using loop::Instruction;
using loop::Nest;
using loop::NestKind;
using loop::Opcode;
using loop::Program;

// The order of the nest's dimensions by the strides of a load (hints), the largest first;
// dimensions of size 1 stay in their position. nullopt unless every stride is positive.
std::optional<Order> memory_order(const Program& program, const Nest& nest,
                                  const Instruction& load) {
  if (!program.buffers[load.buffer].strides) return std::nullopt;
  const auto view = strided_view(program, {load.buffer, load.indices}, nest.dims);
  if (!view) return std::nullopt;
  Order places;
  std::vector<std::int64_t> strides(nest.dims.size(), 0);
  for (std::size_t d = 0; d < nest.dims.size(); ++d) {
    if (nest.dims[d].extent.is_constant(1)) continue;
    const auto stride = sym::hint(view->strides[d]);
    if (!stride || *stride <= 0) return std::nullopt;
    strides[d] = *stride;
    places.push_back(d);
  }
  Order sorted = places;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](std::size_t a, std::size_t b) { return strides[a] > strides[b]; });
  Order order = row_major(nest.dims.size());
  for (std::size_t i = 0; i < places.size(); ++i) order[places[i]] = sorted[i];
  return order;
}

// The order of the operands of an elementwise nest: that of one read at the nest's own indices if
// it is not row-major (channels last wins in a region of convolutions), else what all of them
// share.
Order pointwise_order(const Program& program, const Nest& nest) {
  sym::Context& context = *program.context;
  const std::size_t rank = nest.dims.size();
  if (rank < 3) return row_major(rank);
  std::optional<Order> shared;
  bool do_agree = true;
  for (const Instruction& i : nest.body.instructions) {
    if (i.opcode != Opcode::load) continue;
    const Buffer& buffer = program.buffers[i.buffer];
    if (is_identity(i.indices, nest.dims) && dense_order(buffer, context)) {
      Order order = *dense_order(buffer, context);
      if (order != row_major(rank)) return order;
    }
    const auto order = memory_order(program, nest, i);
    if (!order) continue;
    if (shared && *shared != *order) do_agree = false;
    shared = order;
  }
  return shared && do_agree ? *shared : row_major(rank);
}

// The buffers that a convolution reads, directly or through elementwise nests.
std::vector<bool> images_of(const Program& program) {
  std::vector<bool> images(program.buffers.size(), false);
  for (std::size_t n = program.nests.size(); n-- > 0;) {
    const Nest& nest = program.nests[n];
    if (const auto* convolution = std::get_if<loop::Convolution>(&nest.detail)) {
      images[convolution->x] = true;
      if (convolution->weight_gradient) images[convolution->w] = true;
    }
    if (nest.kind != NestKind::pointwise) continue;
    const auto written = loop::writes(nest);
    if (std::none_of(written.begin(), written.end(), [&](BufferId b) { return images[b]; })) {
      continue;
    }
    for (const Instruction& i : nest.body.instructions) {
      if (i.opcode == Opcode::load && is_identity(i.indices, nest.dims)) images[i.buffer] = true;
    }
  }
  return images;
}

// --- GEMM operands with several dimensions in one loop ------------------------------------------

std::vector<loop::Dim> all_dims(const Nest& nest) {
  std::vector<loop::Dim> dims = nest.dims;
  dims.insert(dims.end(), nest.reduced.begin(), nest.reduced.end());
  return dims;
}

// Iterations of v in one step of an index: v / k and v / k % n step once in k iterations.
std::optional<std::int64_t> period_of(Expr index) {
  if (index.kind() == sym::Kind::mod) return period_of(index.operands()[0]);
  if (index.kind() == sym::Kind::floordiv) return sym::hint(index.operands()[1]);
  return 1;
}

// The order of a buffer's dimensions in which `access` is one matrix: those that one loop indexes
// are neighbours, the slowest first. `first` is the loop of the outermost dimensions.
std::optional<Order> joined_order(const Access& access, const std::vector<loop::Dim>& dims,
                                  std::size_t first) {
  struct DimLoop {
    std::size_t loop;
    std::int64_t period;
    std::size_t dim;
  };
  std::vector<DimLoop> dim_loops;
  for (std::size_t d = 0; d < access.indices.size(); ++d) {
    std::optional<std::size_t> loop;
    for (std::size_t l = 0; l < dims.size(); ++l) {
      if (!sym::contains(access.indices[d], dims[l].variable)) continue;
      if (loop) return std::nullopt;
      loop = l;
    }
    if (access.indices[d].is_constant()) {  // one element: at any position
      dim_loops.push_back({0, std::numeric_limits<std::int64_t>::max(), d});
      continue;
    }
    const auto period = period_of(access.indices[d]);
    if (!loop || !period) return std::nullopt;
    dim_loops.push_back({*loop == first ? 0 : *loop + 1, *period, d});
  }
  std::stable_sort(dim_loops.begin(), dim_loops.end(), [](const DimLoop& a, const DimLoop& b) {
    return a.loop != b.loop ? a.loop < b.loop : a.period > b.period;
  });
  Order order;
  for (const DimLoop& p : dim_loops) order.push_back(p.dim);
  return order;
}

using Reader = std::pair<const Access*, std::vector<loop::Dim>>;

// For each buffer, the matrix products that read it.
std::vector<std::vector<Reader>> products_of(const Program& program) {
  std::vector<std::vector<Reader>> readers(program.buffers.size());
  for (const Nest& nest : program.nests) {
    const auto* matmul = std::get_if<loop::Matmul>(&nest.detail);
    if (matmul == nullptr) continue;
    const std::vector<loop::Dim> dims = all_dims(nest);
    readers[matmul->a.buffer].emplace_back(&matmul->a, dims);
    readers[matmul->b.buffer].emplace_back(&matmul->b, dims);
  }
  return readers;
}

// Picks an order of the buffer's dimensions in which more GEMMs read it in place than now; of
// several, one that keeps the last dimension last.
void join_for_products(Program& program, BufferId b, const std::vector<Reader>& readers) {
  sym::Context& context = *program.context;
  const std::vector<Expr> sizes = program.buffers[b].sizes;
  if (sizes.size() < 3) return;  // no loop spans several dimensions
  const auto in_place = [&] {
    return std::count_if(readers.begin(), readers.end(), [&](const Reader& reader) {
      return strided_view(program, *reader.first, reader.second).has_value();
    });
  };
  auto best = in_place();
  std::vector<Expr> chosen = *program.buffers[b].strides;
  bool is_row = true;
  for (const auto& [access, dims] : readers) {
    for (std::size_t first = 0; first < dims.size(); ++first) {
      const auto order = joined_order(*access, dims, first);
      if (!order) continue;
      program.buffers[b].strides = dense_strides(context, sizes, *order);
      const auto count = in_place();
      const bool row = order->back() + 1 == sizes.size();
      if (count < best || (count == best && (is_row || !row))) continue;
      best = count;
      is_row = row;
      chosen = *program.buffers[b].strides;
    }
  }
  program.buffers[b].strides = chosen;
}

Order wanted_order(const Program& program, const Nest& nest, const Buffer& buffer,
                   const abi::ConvolutionLibrary& library) {
  const std::size_t rank = buffer.sizes.size();
  switch (nest.kind) {
    case NestKind::convolution: {
      const auto& convolution = std::get<loop::Convolution>(nest.detail);
      if (!convolution.weight_gradient) {
        return convolved_order(program.buffers[convolution.x], library, *program.context);
      }
      const bool wanted = library.weights_channels_last && abi::is_reduced_float(buffer.dtype);
      return wanted ? channels_last(rank) : row_major(rank);
    }
    case NestKind::attention:
      if (rank == 4) return {0, 2, 1, 3};
      return row_major(rank);
    case NestKind::pointwise:
    case NestKind::scan:
      if (rank == nest.dims.size()) return pointwise_order(program, nest);
      return row_major(rank);
    case NestKind::reduction:
    case NestKind::sort:
    case NestKind::scatter:
    case NestKind::matmul:
    case NestKind::eager:
      return row_major(rank);
  }
  return row_major(rank);
}

}  // namespace

void choose_layouts(Program& program, const abi::ConvolutionLibrary& library) {
  sym::Context& context = *program.context;
  const std::vector<bool> images = images_of(program);
  const auto products = products_of(program);
  for (const Nest& nest : program.nests) {
    for (const BufferId b : loop::writes(nest)) {
      Buffer& buffer = program.buffers[b];
      if (buffer.strides) continue;
      const bool is_image = images[b] && !library.keeps_order.has(buffer.dtype);
      const Order order = is_image && nest.kind == NestKind::pointwise
                              ? channels_last(buffer.sizes.size())
                              : wanted_order(program, nest, buffer, library);
      buffer.strides = dense_strides(context, buffer.sizes, order);
      if (nest.kind == NestKind::pointwise && !products[b].empty()) {
        join_for_products(program, b, products[b]);
      }
    }
  }
  for (Buffer& buffer : program.buffers) {
    if (!buffer.strides) {
      buffer.strides = dense_strides(context, buffer.sizes, row_major(buffer.sizes.size()));
    }
  }
}

}  // namespace inkle::schedule
