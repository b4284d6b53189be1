#include "schedule/linear.h"

#include <algorithm>

#include "base/error.h"

namespace inkle::schedule {

Expr linear_offset(const loop::Buffer& buffer, std::span<const Expr> indices,
                   sym::Context& context) {
  INKLE_CHECK(buffer.strides.has_value(), "buffer {} has no layout yet", buffer.name);
  INKLE_CHECK(buffer.strides->size() == indices.size(), "buffer {} of rank {} indexed with {}",
              buffer.name, buffer.strides->size(), indices.size());
  Expr offset = buffer.offset.is_null() ? context.constant(0) : buffer.offset;
  for (std::size_t d = 0; d < indices.size(); ++d) {
    offset = offset + indices[d] * (*buffer.strides)[d];
  }
  return offset;
}

bool has_variables(Expr e) {
  const sym::Symbols symbols = sym::symbols(e);
  return std::any_of(symbols.begin(), symbols.end(),
                     [&](Expr s) { return !e.context().info(s).extent.is_null(); });
}

std::optional<View> strided_view(const loop::Program& program, const loop::Access& access,
                                 std::span<const loop::Dim> dims) {
  sym::Context& context = *program.context;
  View view;
  view.buffer = access.buffer;
  Expr rest = linear_offset(program.buffers[access.buffer], access.indices, context);
  for (const loop::Dim& dim : dims) {
    Expr stride = context.constant(0);
    if (!dim.variable.is_constant() && sym::contains(rest, dim.variable)) {
      const std::optional<Expr> found = sym::stride(rest, dim.variable);
      if (!found) return std::nullopt;
      stride = *found;
      rest = rest - stride * dim.variable;
    }
    view.sizes.push_back(dim.extent);
    view.strides.push_back(stride);
  }
  if (has_variables(rest) || std::any_of(view.strides.begin(), view.strides.end(), has_variables)) {
    return std::nullopt;
  }
  view.offset = rest;
  return view;
}

bool is_matrix(const View& view) {
  const auto lies = [&](std::size_t line, std::size_t along) {
    const Expr step = view.strides[line];
    const Expr length = view.sizes[along];
    if (!view.strides[along].is_constant(1) && !length.is_constant(1)) return false;
    if (view.sizes[line].is_constant(1)) return true;
    if (!step.is_constant()) return true;
    // Symbolic sizes are at least 2, and those of calls are near their hints.
    const std::int64_t likely = std::max<std::int64_t>(sym::hint(length).value_or(0), 2);
    return *step.constant() >= length.constant().value_or(likely);
  };
  const auto is_zero = [](Expr size) { return size.is_constant(0); };
  if (std::any_of(view.sizes.begin(), view.sizes.end(), is_zero)) return true;
  const std::size_t rank = view.strides.size();
  return lies(rank - 2, rank - 1) || lies(rank - 1, rank - 2);
}

Expr extent_product(std::span<const loop::Dim> dims, sym::Context& context) {
  Expr product = context.constant(1);
  for (const loop::Dim& dim : dims) product = product * dim.extent;
  return product;
}

std::int64_t extent_hint(std::span<const loop::Dim> dims, std::int64_t fallback) {
  std::int64_t product = 1;
  for (const loop::Dim& dim : dims) {
    const std::int64_t extent = sym::hint(dim.extent).value_or(fallback);
    if (__builtin_mul_overflow(product, extent, &product)) return sym::Range::kMax;
  }
  return product;
}

bool is_identity(std::span<const Expr> indices, std::span<const loop::Dim> dims) {
  if (indices.size() != dims.size()) return false;
  for (std::size_t d = 0; d < dims.size(); ++d) {
    const bool unit = dims[d].extent.is_constant(1) && indices[d].is_constant(0);
    if (!(indices[d] == dims[d].variable) && !unit) return false;
  }
  return true;
}

}  // namespace inkle::schedule
