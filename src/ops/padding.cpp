// Paddings that repeat the input, and their gradients.
#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "ops/axes.h"
#include "ops/infer.h"
#include "ops/samples.h"
#include "ops/table.h"

namespace inkle::ops {
namespace {

using graph::Argument;
using graph::OpDef;
using graph::Sample;
using infer::Types;

// --- (self, padding); pairs from the last dimension backwards

enum class Fill { reflection, replication };

template <std::size_t rank>
Types infer_pad(Inference& in) {
  const Type& x = infer::computable(in, 0);
  if (x.rank() != rank + 1 && x.rank() != rank + 2) in.fail("the input has the wrong rank");
  const std::vector<Expr> padding = in.integers(1);
  if (padding.size() != 2 * rank) in.fail("padding has the wrong length");
  Sizes sizes = x.sizes;
  for (std::size_t d = 0; d < rank; ++d) {
    Expr& size = sizes[sizes.size() - 1 - d];
    size = size + (padding[2 * d] + padding[2 * d + 1]);
  }
  return {infer::make(x, x.dtype, std::move(sizes))};
}
// max(e, -e): the distance from 0.
Expr magnitude(Expr e) { return sym::max(e, -e); }

template <Fill fill, std::size_t rank>
void lower_pad(Lowering& l) {
  const Tensor& x = l.tensor(0);
  const std::vector<Expr> padding = l.args().integers(1);
  l.result(l.pointwise(l.result_type().sizes, x.dtype, [&](BodyBuilder& b, Indices i) {
    std::vector<Expr> at(i.begin(), i.end());
    for (std::size_t d = 0; d < rank; ++d) {
      const std::size_t dim = x.rank() - 1 - d;
      const Expr last = x.sizes[dim] - 1, inner = i[dim] - padding[2 * d];
      // Reflection folds at 0, then at the last position.
      at[dim] = fill == Fill::reflection ? last - magnitude(last - magnitude(inner))
                                         : sym::min(sym::max(inner, l.context().constant(0)), last);
    }
    return l.element(b, x, at);
  }));
}
// The index of the input element that is copied to index i.
template <Fill fill, std::size_t rank>
std::vector<std::int64_t> source(const RefTensor& x, std::span<const std::int64_t> padding,
                                 std::span<const std::int64_t> i) {
  std::vector<std::int64_t> at(i.begin(), i.end());
  for (std::size_t d = 0; d < rank; ++d) {
    const std::size_t dim = x.rank() - 1 - d;
    std::int64_t j = i[dim] - padding[2 * d];
    const std::int64_t size = x.sizes[dim];
    if (fill == Fill::replication)
      j = std::clamp<std::int64_t>(j, 0, size - 1);
    else if (j < 0)
      j = -j;
    else if (j >= size)
      j = 2 * (size - 1) - j;
    at[dim] = j;
  }
  return at;
}
template <Fill fill, std::size_t rank>
void reference_pad(Evaluation& e) {
  const RefTensor& x = e.tensor(0);
  const auto padding = e.integers(1);
  for_each_index(e.result().sizes, [&](std::span<const std::int64_t> i, std::size_t p) {
    e.result().copy_element(p, x, x.at(source<fill, rank>(x, padding, i)));
  });
}

// --- Gradients: (grad, self, padding). As a gather: each element of the input loads from the
// indices that it was copied to, so that no two writes collide.

// Copies up to which the loop over them is unrolled: a limit of code size, not measured.
constexpr std::int64_t kUnrolledPlaces = 27;

struct Pad {
  Expr low, high;
};
Pad pad_of(std::span<const Expr> padding, std::size_t dim, std::size_t rank) {
  const std::size_t pair = 2 * (rank - 1 - dim);
  return {padding[pair], padding[pair + 1]};
}

template <std::size_t rank>
Types infer_backward(Inference& in) {
  const Type &g = float_tensor(in, 0), &x = float_tensor(in, 1);
  if (x.rank() != rank + 1 && x.rank() != rank + 2) in.fail("the input has the wrong rank");
  const std::vector<Expr> padding = in.integers(2);
  if (padding.size() != 2 * rank) in.fail("padding has the wrong length");
  bool fits = g.rank() == x.rank() && g.dtype == x.dtype;
  for (std::size_t d = 0; fits && d < x.rank(); ++d) {
    const std::size_t first = x.rank() - rank;
    Expr size = x.sizes[d];
    if (d >= first) {
      const Pad pad = pad_of(padding, d - first, rank);
      size = size + (pad.low + pad.high);
    }
    fits = in.context().guard_equal(g.sizes[d], size);
  }
  if (!fits) in.fail("the gradient does not fit");
  return {infer::make(x, x.dtype, x.sizes)};
}

// Whether it is not known to be 0 or less.
bool may_copy(Expr pad) { return sym::less_equal(pad, pad.context().constant(0)) != true; }
bool may_cut(Expr pad) { return sym::less_equal(pad.context().constant(0), pad) != true; }

// The indices that an element may have been copied to along a dimension are numbered: of a
// reflection its own, the one below 0 and the one beyond the end, as far as there are pads; of a
// replication those from `low` before its own to `high` behind it.
template <Fill fill>
Expr places(Pad pad) {
  const Expr zero = pad.low.context().constant(0);
  if (fill == Fill::reflection) return zero + (1 + may_copy(pad.low) + may_copy(pad.high));
  return sym::max(pad.low, zero) + sym::max(pad.high, zero) + 1;
}

// One of the indices that position p of n was copied to.
struct CopiedIndex {
  Expr at;
  Val is_copy;
};
template <Fill fill>
CopiedIndex copied_index(BodyBuilder& b, Pad pad, Expr number, Expr p, Expr n) {
  const auto constant = [&](std::int64_t value) { return b.constant(DType::i64, value); };
  const auto at_most = [&](Expr low, Expr high) {
    return b.binary(Opcode::less_equal, b.index(low), b.index(high));
  };
  const auto is = [&](Expr e, Expr value) {
    return b.binary(Opcode::equal, b.index(e), b.index(value));
  };
  const Expr zero = b.context().constant(0), own = p + pad.low;
  CopiedIndex found{own, b.constant(DType::boolean, std::int64_t{1})};
  if (fill == Fill::reflection) {
    const std::int64_t which = *number.constant();
    if (which == 1 && may_copy(pad.low)) {
      found.at = pad.low - p;
      found.is_copy = b.logical_and(at_most(zero + 1, p), at_most(p, pad.low));
    } else if (which > 0) {
      found.at = n * 2 - 2 + pad.low - p;
      found.is_copy = b.logical_and(at_most(n - 1 - pad.high, p), at_most(p, n - 2));
    }
  } else {
    const Expr step = number - sym::max(pad.low, zero);
    found.at = own + step;
    const Val before = b.logical_and(b.less(b.index(step), constant(0)), is(p, zero));
    const Val behind = b.logical_and(b.less(constant(0), b.index(step)), is(p, n - 1));
    found.is_copy = b.logical_or(is(step, zero), b.logical_or(before, behind));
  }
  if (may_cut(pad.low) || may_cut(pad.high)) {  // a part of the input is cut off
    const Expr end = n + (pad.low + pad.high);
    const Val inside =
        b.logical_and(at_most(zero, found.at), b.less(b.index(found.at), b.index(end)));
    found.is_copy = b.logical_and(found.is_copy, inside);
  }
  return found;
}

template <Fill fill, std::size_t rank>
void lower_backward(Lowering& l) {
  const Tensor &g = l.tensor(0), &x = l.tensor(1);
  const std::vector<Expr> padding = l.args().integers(2);
  const DType compute = abi::compute_type(x.dtype);
  const std::size_t first = x.rank() - rank;
  const auto brought = [&](BodyBuilder& b, Indices i, Indices numbers) {
    std::vector<Expr> at(i.begin(), i.end());
    Val is_copy = b.constant(DType::boolean, std::int64_t{1});
    for (std::size_t d = 0; d < rank; ++d) {
      const CopiedIndex found = copied_index<fill>(b, pad_of(padding, d, rank), numbers[d],
                                                   i[first + d], x.sizes[first + d]);
      at[first + d] = found.at;
      is_copy = b.logical_and(is_copy, found.is_copy);
    }
    return b.cast(
        b.load_if(is_copy, b.constant(g.dtype, 0.0), g.buffer, g.dtype, g.buffer_indices(at)),
        compute);
  };
  std::vector<std::int64_t> visits;
  Sizes reduced;
  std::int64_t total = 1;
  for (std::size_t d = 0; d < rank; ++d) {
    reduced.push_back(places<fill>(pad_of(padding, d, rank)));
    visits.push_back(reduced.back().constant().value_or(kUnrolledPlaces + 1));
    total *= visits.back();
  }
  if (total > kUnrolledPlaces) {
    l.result(l.reduce(loop::ReduceOp::sum, x.sizes, reduced, compute, {x.dtype}, brought)[0]);
    return;
  }
  l.result(l.pointwise(x.sizes, x.dtype, [&](BodyBuilder& b, Indices i) {
    std::optional<Val> sum;
    for_each_index(visits, [&](std::span<const std::int64_t> visit, std::size_t) {
      std::vector<Expr> numbers;
      for (const std::int64_t n : visit) numbers.push_back(l.context().constant(n));
      const Val one = brought(b, i, numbers);
      sum = sum ? b.add(*sum, one) : one;
    });
    return *sum;
  }));
}

// As a scatter, by the copies of the padding itself.
template <Fill fill, std::size_t rank>
void reference_backward(Evaluation& e) {
  const RefTensor &g = e.tensor(0), &x = e.tensor(1);
  const auto padding = e.integers(2);
  RefTensor& y = e.result();
  for_each_index(g.sizes, [&](std::span<const std::int64_t> i, std::size_t p) {
    const std::size_t at = x.at(source<fill, rank>(x, padding, i));
    y.set(at, y.real(at) + g.real(p));
  });
}

// --- Samples and rows

template <std::size_t rank>
std::vector<Sample> samples_pad() {
  return {{"uneven",
           [](SampleBuilder& s) -> std::vector<Argument> {
             std::vector<Expr> sizes = {s.size(2), s.constant(3)}, padding;
             for (std::size_t d = 0; d < rank; ++d) {
               sizes.push_back(s.constant(4 + static_cast<int>(d)));
               padding.push_back(s.constant(2));
               padding.push_back(s.constant(1));
             }
             return {s.tensor(std::move(sizes)), std::move(padding)};
           },
           number_dtypes(), true}};
}

template <std::size_t rank, std::int64_t low, std::int64_t high>
std::vector<Argument> padded(SampleBuilder& s) {
  std::vector<Expr> sizes = {s.size(2), s.constant(3)}, given = sizes, padding;
  for (std::size_t d = 0; d < rank; ++d) {
    const std::int64_t size = 5 + static_cast<std::int64_t>(d);
    sizes.push_back(s.constant(size));
    given.push_back(s.constant(size + low + high));
    padding.push_back(s.constant(low));
    padding.push_back(s.constant(high));
  }
  return {s.tensor(std::move(given)), s.tensor(std::move(sizes)), std::move(padding)};
}
template <std::size_t rank>
std::vector<Sample> samples_backward() {
  return {{"uneven", padded<rank, 2, 1>, float_dtypes(), true},
          {"wide", padded<rank, 4, 3>, {DType::f32}, true},
          {"cut", padded<rank, -1, 2>, {DType::f32}, true}};
}

template <Fill fill, std::size_t rank>
constexpr OpDef pad_row(std::string_view name, std::string_view aten) {
  return {.name = name,
          .schema = "(self: tensor, padding: integer_list) -> tensor",
          .doc = fill == Fill::reflection ? "Pads with the input mirrored at its edges."
                                          : "Pads with the input's edges.",
          .infer = infer_pad<rank>,
          .lower = lower_pad<fill, rank>,
          .reference = reference_pad<fill, rank>,
          .aten = aten,
          .samples = samples_pad<rank>};
}

template <Fill fill, std::size_t rank>
constexpr OpDef backward_row(std::string_view name, std::string_view aten) {
  return {.name = name,
          .schema = "(grad_output: tensor, self: tensor, padding: integer_list) -> tensor",
          .doc = fill == Fill::reflection ? "Gradient of a padding that mirrors."
                                          : "Gradient of a padding with the edges.",
          .infer = infer_backward<rank>,
          .lower = lower_backward<fill, rank>,
          .reference = reference_backward<fill, rank>,
          .aten = aten,
          .samples = samples_backward<rank>};
}

constexpr OpDef kPadding[] = {
    pad_row<Fill::reflection, 1>("reflection_pad1d", "aten::reflection_pad1d"),
    backward_row<Fill::reflection, 1>("reflection_pad1d_backward",
                                      "aten::reflection_pad1d_backward"),
    pad_row<Fill::reflection, 2>("reflection_pad2d", "aten::reflection_pad2d"),
    backward_row<Fill::reflection, 2>("reflection_pad2d_backward",
                                      "aten::reflection_pad2d_backward"),
    pad_row<Fill::reflection, 3>("reflection_pad3d", "aten::reflection_pad3d"),
    backward_row<Fill::reflection, 3>("reflection_pad3d_backward",
                                      "aten::reflection_pad3d_backward"),
    pad_row<Fill::replication, 1>("replication_pad1d", "aten::replication_pad1d"),
    backward_row<Fill::replication, 1>("replication_pad1d_backward",
                                       "aten::replication_pad1d_backward"),
    pad_row<Fill::replication, 2>("replication_pad2d", "aten::replication_pad2d"),
    backward_row<Fill::replication, 2>("replication_pad2d_backward",
                                       "aten::replication_pad2d_backward"),
    pad_row<Fill::replication, 3>("replication_pad3d", "aten::replication_pad3d"),
    backward_row<Fill::replication, 3>("replication_pad3d_backward",
                                       "aten::replication_pad3d_backward"),
};

}  // namespace

std::span<const OpDef> padding_ops() { return kPadding; }

}  // namespace inkle::ops
