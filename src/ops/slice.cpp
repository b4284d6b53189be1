// Views that slice a dimension: select, slice, split, unbind.
#include <algorithm>
#include <limits>

#include "base/error.h"
#include "ops/elementwise.h"
#include "ops/table.h"
#include "ops/views.h"

namespace inkle::ops {

using graph::Argument;
using graph::Inference;
using infer::Types;
using Args = std::vector<Argument>;

Expr wrapped_index(Expr index, Expr size) {
  const sym::Range range = sym::bounds(index);
  if (range.low >= 0) return index;
  if (range.high < 0) return index + size;
  unsupported("an index {} of unknown sign", to_string(index));
}

Slice slice_of(sym::Context& context, Expr size, std::optional<Expr> start, std::optional<Expr> end,
               std::int64_t step) {
  if (step <= 0) user_error("the step of a slice must be positive");
  const Expr zero = context.constant(0);
  const auto clamp = [](Expr e, Expr low, Expr high) {
    if (sym::less_equal(low, e) != true) e = max(e, low);
    if (sym::less_equal(e, high) != true) e = min(e, high);
    return e;
  };
  const auto is_unbounded = [](Expr e) {
    return e.is_constant() && *e.constant() == std::numeric_limits<std::int64_t>::max();
  };
  Expr from = start ? clamp(wrapped_index(*start, size), zero, size) : zero;
  Expr to = size;
  if (end && !is_unbounded(*end)) to = clamp(wrapped_index(*end, size), from, size);
  return {from, ceildiv(to - from, step), step};
}

namespace {

std::optional<Expr> optional_integer(const Inference& args, std::size_t i) {
  if (args.is_none(i)) return std::nullopt;
  return args.integer(i);
}

// The operand's type with dimension `dim` sliced.
infer::Type cut(const infer::Type& x, std::size_t dim, const Slice& slice) {
  infer::Type r = infer::make(x, x.dtype, x.sizes);
  r.strides = x.strides;
  r.sizes[dim] = slice.length;
  if (r.strides) (*r.strides)[dim] = (*r.strides)[dim] * slice.step;
  return r;
}

Tensor cut(const Lowering& l, std::size_t dim, const Slice& slice) {
  const Tensor& x = l.tensor(0);
  Sizes sizes = x.sizes;
  sizes[dim] = slice.length;
  return l.view(x, std::move(sizes), [dim, slice](Indices i) {
    std::vector<Expr> from(i.begin(), i.end());
    from[dim] = from[dim] * slice.step + slice.start;
    return from;
  });
}

void ref_cut(Evaluation& e, std::size_t result, std::size_t dim, std::int64_t start,
             std::int64_t step) {
  const RefTensor& x = e.tensor(0);
  RefTensor& r = e.result(result);
  for_each_index(r.sizes, [&](std::span<const std::int64_t> i, std::size_t p) {
    std::vector<std::int64_t> from(i.begin(), i.end());
    from[dim] = start + from[dim] * step;
    r.copy_element(p, x, x.at(from));
  });
}

// --- select
// -----------------------------------------------------------------------------------------

Types infer_select(Inference& args) {
  const infer::Type& x = infer::computable(args, 0);
  if (x.rank() == 0) args.fail("needs a tensor with dimensions");
  const std::size_t dim = args.dim(args.constant_integer(1), x.rank());
  const Expr index = wrapped_index(args.integer(2), x.sizes[dim]);
  if (sym::less(index, x.sizes[dim]) == false) {
    args.fail(fmt::format("index {} is out of range for size {}", to_string(index),
                          to_string(x.sizes[dim])));
  }
  infer::Type r = infer::make(x, x.dtype, x.sizes);
  const auto at = static_cast<std::ptrdiff_t>(dim);
  r.sizes.erase(r.sizes.begin() + at);
  if (x.strides) {
    r.strides = x.strides;
    r.strides->erase(r.strides->begin() + at);
  }
  return {r};
}

Tensor select_view(const Lowering& l, std::size_t dim, Expr index) {
  Sizes sizes = l.tensor(0).sizes;
  sizes.erase(sizes.begin() + static_cast<std::ptrdiff_t>(dim));
  return l.view(l.tensor(0), std::move(sizes), [dim, index](Indices i) {
    std::vector<Expr> from(i.begin(), i.end());
    from.insert(from.begin() + static_cast<std::ptrdiff_t>(dim), index);
    return from;
  });
}

void lower_select(Lowering& l) {
  const Tensor& x = l.tensor(0);
  const std::size_t dim = l.args().dim(l.args().constant_integer(1), x.rank());
  l.result(select_view(l, dim, wrapped_index(l.args().integer(2), x.sizes[dim])));
}

void ref_select_at(Evaluation& e, std::size_t result, std::size_t dim, std::int64_t index) {
  const RefTensor& x = e.tensor(0);
  RefTensor& r = e.result(result);
  for_each_index(r.sizes, [&](std::span<const std::int64_t> i, std::size_t p) {
    std::vector<std::int64_t> from(i.begin(), i.end());
    from.insert(from.begin() + static_cast<std::ptrdiff_t>(dim), index);
    r.copy_element(p, x, x.at(from));
  });
}

void ref_select(Evaluation& e) {
  const std::size_t dim = e.dim(e.integer(1), e.tensor(0).rank());
  const std::int64_t index = e.integer(2);
  ref_select_at(e, 0, dim, index < 0 ? index + e.tensor(0).sizes[dim] : index);
}

Types infer_unbind(Inference& args) {
  const infer::Type& x = infer::computable(args, 0);
  if (x.rank() == 0) args.fail("needs a tensor with dimensions");
  const std::size_t dim = args.dim(args.constant_integer(1), x.rank());
  const auto count = x.sizes[dim].constant();
  if (!count) unsupported("unbind of a symbolic size");
  infer::Type r = infer::make(x, x.dtype, x.sizes);
  r.strides = x.strides;
  const auto at = static_cast<std::ptrdiff_t>(dim);
  r.sizes.erase(r.sizes.begin() + at);
  if (r.strides) r.strides->erase(r.strides->begin() + at);
  return Types(static_cast<std::size_t>(*count), r);
}

void lower_unbind(Lowering& l) {
  const std::size_t dim = l.args().dim(l.args().constant_integer(1), l.tensor(0).rank());
  for (std::size_t k = 0; k < l.node().results.size(); ++k) {
    l.result(k, select_view(l, dim, l.context().constant(static_cast<std::int64_t>(k))));
  }
}

void ref_unbind(Evaluation& e) {
  const std::size_t dim = e.dim(e.integer(1), e.tensor(0).rank());
  for (std::size_t k = 0; k < e.result_count(); ++k) {
    ref_select_at(e, k, dim, static_cast<std::int64_t>(k));
  }
}

// --- slice and narrow
// -------------------------------------------------------------------------------

struct DimSlice {
  std::size_t dim;
  Slice slice;
};

DimSlice slice_arguments(const Inference& args) {
  const infer::Type& x = args.tensor(0);
  if (x.rank() == 0) args.fail("needs a tensor with dimensions");
  const std::size_t dim = args.dim(args.constant_integer(1), x.rank());
  return {dim, slice_of(args.context(), x.sizes[dim], optional_integer(args, 2),
                        optional_integer(args, 3), args.constant_integer(4))};
}

DimSlice narrow_arguments(const Inference& args) {
  const infer::Type& x = args.tensor(0);
  const std::size_t dim = args.dim(args.constant_integer(1), x.rank());
  if (args.is_tensor(2)) unsupported("narrow at a tensor");
  return {dim, {wrapped_index(args.integer(2), x.sizes[dim]), args.integer(3), 1}};
}

template <auto kArguments>
Types infer_slice(Inference& args) {
  const infer::Type& x = infer::computable(args, 0);
  const DimSlice s = kArguments(args);
  return {cut(x, s.dim, s.slice)};
}

template <auto kArguments>
void lower_slice(Lowering& l) {
  const DimSlice s = kArguments(l.args());
  l.result(cut(l, s.dim, s.slice));
}

void ref_slice(Evaluation& e) {
  const std::size_t dim = e.dim(e.integer(1), e.tensor(0).rank());
  const std::int64_t size = e.tensor(0).sizes[dim];
  std::int64_t start = e.is_none(2) ? 0 : e.integer(2);
  if (start < 0) start += size;
  ref_cut(e, 0, dim, std::clamp<std::int64_t>(start, 0, size), e.integer(4));
}

void ref_narrow(Evaluation& e) {
  const std::size_t dim = e.dim(e.integer(1), e.tensor(0).rank());
  const std::int64_t start = e.integer(2);
  ref_cut(e, 0, dim, start < 0 ? start + e.tensor(0).sizes[dim] : start, 1);
}

// --- split
// ------------------------------------------------------------------------------------------

struct Pieces {
  std::size_t dim = 0;
  std::vector<Slice> slices;
};

enum class SplitForm : std::uint8_t { size, sizes, chunks };

template <SplitForm kForm>
Pieces split_pieces(const Inference& args) {
  const infer::Type& x = args.tensor(0);
  if (x.rank() == 0) args.fail("needs a tensor with dimensions");
  Pieces pieces{.dim = args.dim(args.constant_integer(2), x.rank())};
  const Expr size = x.sizes[pieces.dim];
  Expr start = args.context().constant(0);
  const auto add = [&](Expr length) {
    pieces.slices.push_back({start, length, 1});
    start = start + length;
  };
  if (kForm == SplitForm::sizes) {
    for (Expr length : args.integers(1)) add(length);
    if (!args.context().guard_equal(start, size)) {
      args.fail(fmt::format("the sizes add up to {}, not {}", to_string(start), to_string(size)));
    }
    return pieces;
  }
  // Equal pieces, the last one shorter; their number must be known.
  Expr length = args.integer(1);
  if (kForm == SplitForm::chunks) {
    const std::int64_t count = args.constant_integer(1);
    if (count <= 0) args.fail("needs at least one chunk");
    length = ceildiv(size, count);
  }
  if (length.is_constant(0) && size.is_constant(0)) {
    add(size);
    return pieces;
  }
  if (sym::bounds(length).low <= 0) args.fail("the size of a piece must be positive");
  const Expr pieces_needed = ceildiv(size, length);
  // A graph has as many results as there are pieces now; a guard holds the call to their number.
  const auto count = sym::hint(pieces_needed);
  if (!count || !args.context().guard_equal(pieces_needed, args.context().constant(*count))) {
    unsupported("a split into a symbolic number of pieces");
  }
  for (std::int64_t k = 0; k + 1 < std::max<std::int64_t>(*count, 1); ++k) add(length);
  add(size - start);
  return pieces;
}

template <SplitForm kForm>
Types infer_split(Inference& args) {
  const infer::Type& x = infer::computable(args, 0);
  const Pieces pieces = split_pieces<kForm>(args);
  Types types;
  for (const Slice& slice : pieces.slices) types.push_back(cut(x, pieces.dim, slice));
  return types;
}

template <SplitForm kForm>
void lower_split(Lowering& l) {
  const Pieces pieces = split_pieces<kForm>(l.args());
  for (std::size_t k = 0; k < pieces.slices.size(); ++k) {
    l.result(k, cut(l, pieces.dim, pieces.slices[k]));
  }
}

void ref_split(Evaluation& e) {
  const std::size_t dim = e.dim(e.integer(2), e.tensor(0).rank());
  std::int64_t start = 0;
  for (std::size_t k = 0; k < e.result_count(); ++k) {
    ref_cut(e, k, dim, start, 1);
    start += e.result(k).sizes[dim];
  }
}

// --- Samples
// ----------------------------------------------------------------------------------------

std::vector<graph::Sample> select_samples() {
  return {{"last", [](SampleBuilder& s) {
             return Args{s.tensor({s.size(3), s.constant(4)}), s.constant(1), s.constant(-1)};
           }}};
}
std::vector<graph::Sample> unbind_samples() {
  return {{"three", [](SampleBuilder& s) {
             return Args{s.tensor({s.size(4), s.constant(3)}), s.constant(1)};
           }}};
}
std::vector<graph::Sample> slice_samples() {
  return {{"middle",
           [](SampleBuilder& s) {
             return Args{s.tensor({s.size(3), s.constant(9)}), s.constant(1), s.constant(2),
                         s.constant(-1), s.constant(2)};
           }},
          {"tail",
           [](SampleBuilder& s) {
             return Args{s.free_tensor({6, 3}), s.constant(0), s.constant(1),
                         s.constant(std::numeric_limits<std::int64_t>::max())};
           }},
          {"beyond", [](SampleBuilder& s) {
             return Args{s.free_tensor({3, 4}), s.constant(0), s.constant(0), s.constant(100)};
           }}};
}
std::vector<graph::Sample> narrow_samples() {
  return {{"middle", [](SampleBuilder& s) {
             return Args{s.tensor({s.size(3), s.constant(9)}), s.constant(1), s.constant(2),
                         s.constant(4)};
           }}};
}
std::vector<graph::Sample> split_samples() {
  return {{"uneven", [](SampleBuilder& s) {
             return Args{s.tensor({s.size(3), s.constant(8)}), s.constant(3), s.constant(1)};
           }}};
}
std::vector<graph::Sample> split_sizes_samples() {
  return {{"uneven", [](SampleBuilder& s) {
             return Args{s.tensor({s.size(3), s.constant(8)}), Sizes{s.constant(3), s.constant(5)},
                         s.constant(-1)};
           }}};
}

constexpr OpDef kSlices[] = {
    view_row("chunk", "(self: tensor, chunks: integer, dim: integer = 0) -> tensor...",
             "aten::chunk aten::unsafe_chunk", "At most that many equal pieces of a dimension.",
             infer_split<SplitForm::chunks>, lower_split<SplitForm::chunks>, ref_split,
             split_samples),
    view_row("narrow", "(self: tensor, dim: integer, start: operand, length: integer) -> tensor",
             "aten::narrow aten::narrow.Tensor", "length elements of a dimension from start.",
             infer_slice<narrow_arguments>, lower_slice<narrow_arguments>, ref_narrow,
             narrow_samples),
    view_row("select", "(self: tensor, dim: integer, index: integer) -> tensor",
             "aten::select.int aten::select_copy.int", "One index of a dimension, which goes away.",
             infer_select, lower_select, ref_select, select_samples),
    view_row("slice",
             "(self: tensor, dim: integer = 0, start: integer? = none, end: integer? = none, "
             "step: integer = 1) -> tensor",
             "aten::slice.Tensor aten::slice_copy.Tensor", "Every step-th index from start to end.",
             infer_slice<slice_arguments>, lower_slice<slice_arguments>, ref_slice, slice_samples),
    view_row("split", "(self: tensor, split_size: integer, dim: integer = 0) -> tensor...",
             "aten::split.Tensor aten::unsafe_split.Tensor aten::split_copy.Tensor",
             "Pieces of a dimension, the last one shorter.", infer_split<SplitForm::size>,
             lower_split<SplitForm::size>, ref_split, split_samples),
    view_row("split_with_sizes",
             "(self: tensor, split_sizes: integer[], dim: integer = 0) -> tensor...",
             "aten::split_with_sizes aten::split.sizes aten::unsafe_split_with_sizes "
             "aten::split_with_sizes_copy",
             "Pieces of a dimension of these sizes.", infer_split<SplitForm::sizes>,
             lower_split<SplitForm::sizes>, ref_split, split_sizes_samples),
    view_row("unbind", "(self: tensor, dim: integer = 0) -> tensor...",
             "aten::unbind.int aten::unbind_copy.int", "All indices of a dimension, one by one.",
             infer_unbind, lower_unbind, ref_unbind, unbind_samples),
};

}  // namespace

std::span<const graph::OpDef> slice_ops() { return kSlices; }

}  // namespace inkle::ops
