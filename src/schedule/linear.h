// Accesses as linear offsets, once layouts are decided.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "loop/program.h"
#include "schedule/scheduled.h"

namespace inkle::schedule {

// Element offset of buffer[indices] from the buffer's data pointer. The buffer has strides.
[[nodiscard]] Expr linear_offset(const loop::Buffer& buffer, std::span<const Expr> indices,
                                 sym::Context& context);

// Whether e depends on an iteration or on data (an indirect index), rather than on sizes alone.
[[nodiscard]] bool has_variables(Expr e);

// The access as a strided view over `dims`; nullopt unless it is linear in every variable with
// coefficients and remainder free of all of them.
[[nodiscard]] std::optional<View> strided_view(const loop::Program& program,
                                               const loop::Access& access,
                                               std::span<const loop::Dim> dims);

// Whether the last two dimensions of a view are a matrix as BLAS reads one: the step along one of
// them is 1, and along the other not known to be less than the extent of the first. What has no
// elements is one, and may have no memory to be copied from.
[[nodiscard]] bool is_matrix(const View& view);

[[nodiscard]] Expr extent_product(std::span<const loop::Dim> dims, sym::Context& context);
// The product's hint; `fallback` where a symbol has none.
[[nodiscard]] std::int64_t extent_hint(std::span<const loop::Dim> dims,
                                       std::int64_t fallback = 4096);

// True if every index of the access is exactly the variable of that dimension.
[[nodiscard]] bool is_identity(std::span<const Expr> indices, std::span<const loop::Dim> dims);

}  // namespace inkle::schedule
