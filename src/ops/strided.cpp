// Views of two dimensions at once or through memory: diagonals, windows, strides.
#include <algorithm>
#include <functional>

#include "base/error.h"
#include "ops/elementwise.h"
#include "ops/table.h"
#include "ops/views.h"

namespace inkle::ops {
namespace {

using graph::Argument;
using graph::Inference;
using infer::Types;
using Args = std::vector<Argument>;

struct Diagonal {
  std::size_t dim1, dim2;
  std::int64_t offset;
};

Diagonal diagonal_arguments(const Inference& args) {
  const std::size_t rank = args.tensor(0).rank();
  const Diagonal d{args.dim(args.constant_integer(2), rank),
                   args.dim(args.constant_integer(3), rank),
                   std::max(args.constant_integer(1), -sym::Range::kMax)};
  if (d.dim1 == d.dim2) args.fail("the two dimensions must differ");
  return d;
}

Types infer_diagonal(Inference& args) {
  const infer::Type& x = infer::computable(args, 0);
  const Diagonal d = diagonal_arguments(args);
  const Expr rows = d.offset < 0 ? x.sizes[d.dim1] + d.offset : x.sizes[d.dim1];
  const Expr columns = d.offset > 0 ? x.sizes[d.dim2] - d.offset : x.sizes[d.dim2];
  Expr length = rows == columns ? rows : min(rows, columns);
  if (sym::bounds(length).low < 0) length = max(length, args.context().constant(0));
  infer::Type r = infer::make(x, x.dtype, {});
  if (x.strides) r.strides = Sizes{};
  for (std::size_t k = 0; k < x.rank(); ++k) {
    if (k == d.dim1 || k == d.dim2) continue;
    r.sizes.push_back(x.sizes[k]);
    if (x.strides) r.strides->push_back((*x.strides)[k]);
  }
  r.sizes.push_back(length);
  if (x.strides) r.strides->push_back((*x.strides)[d.dim1] + (*x.strides)[d.dim2]);
  return {r};
}

// Where a diagonal begins in the dimension that its offset is of. One without elements begins where
// the tensor does, as in ATen, however large the offset.
Expr diagonal_start(const Diagonal& d, Expr length) {
  const Expr one = length.context().constant(1);
  const Expr is_some = sym::bounds(length).low > 0 ? one : min(length, one);
  return is_some * std::abs(d.offset);
}

void lower_diagonal(Lowering& l) {
  const Diagonal d = diagonal_arguments(l.args());
  const Tensor& x = l.tensor(0);
  const Sizes& sizes = l.result_type().sizes;
  const Expr start = diagonal_start(d, sizes.back());
  l.result(l.view(x, sizes, [d, start, rank = x.rank()](Indices i) {
    std::vector<Expr> from;
    std::size_t next = 0;
    for (std::size_t k = 0; k < rank; ++k) {
      from.push_back(k == d.dim1 || k == d.dim2 ? i.back() : i[next++]);
    }
    Expr& moved = from[d.offset < 0 ? d.dim1 : d.dim2];
    moved = moved + start;
    return from;
  }));
}

void ref_diagonal(Evaluation& e) {
  const Diagonal d = diagonal_arguments(Inference(e.graph(), *e.node().op, e.node().args));
  ref_from(e, [&](std::span<const std::int64_t> i, std::vector<std::int64_t>& from) {
    std::size_t next = 0;
    for (std::size_t k = 0; k < from.size(); ++k) {
      const bool is_diagonal = k == d.dim1 || k == d.dim2;
      from[k] = is_diagonal ? i.back() : i[next++];
    }
    from[d.offset < 0 ? d.dim1 : d.dim2] += std::abs(d.offset);
  });
}

Types infer_unfold(Inference& args) {
  const infer::Type& x = infer::computable(args, 0);
  if (x.rank() == 0) args.fail("needs a tensor with dimensions");
  const std::size_t dim = args.dim(args.constant_integer(1), x.rank());
  const std::int64_t size = args.constant_integer(2), step = args.constant_integer(3);
  if (size < 0 || step <= 0) args.fail("needs a positive step");
  infer::Type r = infer::make(x, x.dtype, x.sizes);
  r.sizes[dim] = floordiv(x.sizes[dim] - size, step) + 1;
  r.sizes.push_back(args.context().constant(size));
  if (x.strides) {
    r.strides = x.strides;
    r.strides->push_back((*x.strides)[dim]);
    (*r.strides)[dim] = (*x.strides)[dim] * step;
  }
  return {r};
}

void lower_unfold(Lowering& l) {
  const std::size_t dim = l.args().dim(l.args().constant_integer(1), l.tensor(0).rank());
  const std::int64_t step = l.args().constant_integer(3);
  l.result(l.view(l.tensor(0), l.result_type().sizes, [dim, step](Indices i) {
    std::vector<Expr> from(i.begin(), i.end() - 1);
    from[dim] = from[dim] * step + i.back();
    return from;
  }));
}

void ref_unfold(Evaluation& e) {
  const std::size_t dim = e.dim(e.integer(1), e.tensor(0).rank());
  ref_from(e, [&](std::span<const std::int64_t> i, std::vector<std::int64_t>& from) {
    std::copy(i.begin(), i.end() - 1, from.begin());
    from[dim] = from[dim] * e.integer(3) + i.back();
  });
}

// The operand's memory must be the operand itself, dense in some order of its dimensions: then an
// offset in memory is one element of the operand, and strides are an index map through offsets.
struct Memory {
  std::vector<std::size_t> order;  // dimensions, largest stride first
  Sizes sizes;                     // in that order
};

Memory memory_of(Inference& args, const infer::Type& x) {
  Memory memory;
  const Sizes dense = infer::preserved_strides(args, x);
  if (x.strides && dense != *x.strides && !graph::is_contiguous(x)) {
    unsupported("as_strided of a tensor with gaps");
  }
  for (std::size_t d = 0; d < x.rank(); ++d) {
    if (!x.sizes[d].is_constant(1)) memory.order.push_back(d);
  }
  const auto stride = [&](std::size_t d) { return sym::hint(dense[d]).value_or(0); };
  std::ranges::stable_sort(memory.order, std::ranges::greater{}, stride);
  for (std::size_t d : memory.order) memory.sizes.push_back(x.sizes[d]);
  return memory;
}

Expr offset_of(const Inference& args) {
  return args.is_none(3) ? args.context().constant(0) : args.integer(3);
}

Types infer_as_strided(Inference& args) {
  const infer::Type& x = infer::computable(args, 0);
  (void)memory_of(args, x);
  infer::Type r = infer::make(x, x.dtype, args.integers(1));
  r.strides = args.integers(2);
  if (r.strides->size() != r.rank()) args.fail("needs a stride for each size");
  Expr last = offset_of(args);
  bool is_empty = false;
  for (std::size_t d = 0; d < r.rank(); ++d) {
    is_empty = is_empty || r.sizes[d].is_constant(0);
    last = last + (r.sizes[d] - 1) * (*r.strides)[d];
  }
  const Expr count = graph::element_count(args.context(), x);
  if (!is_empty && !args.context().guard_less(last, count)) {
    unsupported("as_strided reaches beyond its operand");
  }
  return {r};
}

// Logical indices of the operand for a position in its memory.
IndexMap position_map(Lowering& l) {
  Inference args = l.args();
  const infer::Type& x = args.tensor(0);
  const Memory memory = memory_of(args, x);
  const IndexMap split =
      reshape_map(l.context(), memory.sizes, {graph::element_count(l.context(), x)});
  return [split, memory, rank = x.rank(), zero = l.context().constant(0)](Indices position) {
    const std::vector<Expr> in_order = split(position);
    std::vector<Expr> indices(rank, zero);
    for (std::size_t k = 0; k < memory.order.size(); ++k) indices[memory.order[k]] = in_order[k];
    return indices;
  };
}

void lower_as_strided(Lowering& l) {
  const graph::Type& r = l.result_type();
  const Tensor& x = l.tensor(0);
  // The offset counts from the beginning of the memory, so the operand must lie there.
  const std::vector<Expr> origin(x.rank(), l.context().constant(0));
  for (Expr index : x.buffer_indices(origin)) {
    if (!index.is_constant(0)) unsupported("as_strided of a tensor inside another");
  }
  const Expr offset = offset_of(l.args());
  l.result(l.view(x, r.sizes, [map = position_map(l), offset, strides = *r.strides](Indices i) {
    Expr position = offset;
    for (std::size_t d = 0; d < i.size(); ++d) position = position + i[d] * strides[d];
    return map(std::array{position});
  }));
}

void ref_as_strided(Evaluation& e) {
  const RefTensor& x = e.tensor(0);
  std::vector<std::int64_t> own;
  const Sizes expressions =
      e.type(0).strides.value_or(graph::contiguous_strides(e.graph().context(), e.type(0).sizes));
  for (Expr stride : expressions) own.push_back(e.evaluate(stride));
  std::vector<std::size_t> at_position(x.count());
  for_each_index(x.sizes, [&](std::span<const std::int64_t> i, std::size_t p) {
    std::int64_t position = 0;
    for (std::size_t d = 0; d < i.size(); ++d) position += i[d] * own[d];
    at_position.at(static_cast<std::size_t>(position)) = p;
  });
  const std::vector<std::int64_t> strides = e.integers(2);
  const std::int64_t offset = e.is_none(3) ? 0 : e.integer(3);
  for_each_index(e.result().sizes, [&](std::span<const std::int64_t> i, std::size_t p) {
    std::int64_t position = offset;
    for (std::size_t d = 0; d < i.size(); ++d) position += i[d] * strides[d];
    e.result().copy_element(p, x, at_position.at(static_cast<std::size_t>(position)));
  });
}

// --- as_strided_scatter(self, src, size, stride, offset), where src is all of self's memory

Types infer_scatter(Inference& args) {
  const infer::Type &x = infer::computable(args, 0), &src = infer::computable(args, 1);
  const Sizes sizes = args.integers(2);
  if (src.dtype != x.dtype) args.fail("src must have self's dtype");
  if (sizes != src.sizes || args.integers(3).size() != sizes.size()) {
    args.fail("src must have the sizes of the view, with a stride for each");
  }
  (void)memory_of(args, x);
  sym::Context& context = args.context();
  const bool is_whole = (args.is_none(4) || args.integer(4).is_constant(0)) &&
                        args.integers(3) == graph::contiguous_strides(context, sizes) &&
                        graph::element_count(context, src) == graph::element_count(context, x);
  if (!is_whole) unsupported("as_strided_scatter that leaves elements of its operand");
  infer::Type r = infer::make(x, x.dtype, x.sizes);
  r.strides = infer::preserved_strides(args, x);
  return {r};
}

void lower_scatter(Lowering& l) {
  Inference args = l.args();
  const infer::Type& x = args.tensor(0);
  const Memory memory = memory_of(args, x);
  const Sizes flat = {graph::element_count(l.context(), x)};
  const Tensor& src = l.tensor(1);
  const IndexMap joined = reshape_map(l.context(), flat, memory.sizes);
  const IndexMap split = reshape_map(l.context(), src.sizes, flat);
  const graph::Type& r = l.result_type();
  l.result(l.pointwise(r.sizes, r.dtype, [&](BodyBuilder& b, Indices i) {
    std::vector<Expr> in_order;
    for (const std::size_t d : memory.order) in_order.push_back(i[d]);
    return l.element(b, src, split(joined(in_order)));
  }));
}

void ref_scatter(Evaluation& e) {
  std::vector<std::int64_t> own;
  const Sizes expressions =
      e.type(0).strides.value_or(graph::contiguous_strides(e.graph().context(), e.type(0).sizes));
  for (const Expr stride : expressions) own.push_back(e.evaluate(stride));
  for_each_index(e.result().sizes, [&](std::span<const std::int64_t> i, std::size_t p) {
    std::int64_t position = 0;
    for (std::size_t d = 0; d < i.size(); ++d) position += i[d] * own[d];
    e.result().copy_element(p, e.tensor(1), static_cast<std::size_t>(position));
  });
}

std::vector<graph::Sample> scatter_samples() {
  return {{"all of it", [](SampleBuilder& s) {
             const Expr rows = s.size(4);
             return Args{s.tensor({rows * 6}), s.tensor({rows, s.constant(2), s.constant(3)}),
                         Sizes{rows, s.constant(2), s.constant(3)},
                         Sizes{s.constant(6), s.constant(3), s.constant(1)}, s.constant(0)};
           }}};
}

std::vector<graph::Sample> diagonal_samples() {
  return {{"above", [](SampleBuilder& s) {
             return Args{s.tensor({s.constant(5), s.size(3), s.constant(4)}), s.constant(1),
                         s.constant(0), s.constant(2)};
           }}};
}
std::vector<graph::Sample> unfold_samples() {
  return {{"overlapping", [](SampleBuilder& s) {
             return Args{s.tensor({s.size(3), s.constant(9)}), s.constant(1), s.constant(4),
                         s.constant(2)};
           }}};
}
std::vector<graph::Sample> as_strided_samples() {
  return {{"windows", [](SampleBuilder& s) {
             return Args{s.tensor({s.constant(4), s.constant(5)}),
                         Sizes{s.constant(3), s.constant(4)}, Sizes{s.constant(2), s.constant(3)},
                         s.constant(1)};
           }}};
}

constexpr OpDef kStrided[] = {
    view_row("as_strided",
             "(self: tensor, size: integer[], stride: integer[], storage_offset: integer? = none)"
             " -> tensor",
             "aten::as_strided aten::as_strided_copy",
             "Elements of a dense operand's memory at offset + sum of index * stride.",
             infer_as_strided, lower_as_strided, ref_as_strided, as_strided_samples),
    {.name = "as_strided_scatter",
     .schema = "(self: tensor, src: tensor, size: integer[], stride: integer[], "
               "storage_offset: integer? = none) -> tensor",
     .doc = "self with src at strided positions of its memory; only where those are all of it.",
     .traits = graph::Trait::pointwise,
     .infer = infer_scatter,
     .lower = lower_scatter,
     .reference = ref_scatter,
     .aten = "aten::as_strided_scatter",
     .samples = scatter_samples},
    view_row("diagonal",
             "(self: tensor, offset: integer = 0, dim1: integer = 0, dim2: integer = 1) -> tensor",
             "aten::diagonal aten::diagonal_copy",
             "A diagonal of two dimensions, as the last dimension.", infer_diagonal, lower_diagonal,
             ref_diagonal, diagonal_samples),
    view_row("unfold", "(self: tensor, dimension: integer, size: integer, step: integer) -> tensor",
             "aten::unfold aten::unfold_copy", "Windows of a dimension, as a new last dimension.",
             infer_unfold, lower_unfold, ref_unfold, unfold_samples),
};

}  // namespace

std::span<const graph::OpDef> strided_ops() { return kStrided; }

}  // namespace inkle::ops
