// Gradients of slicing views, and of dropout: zeros with the gradient at the slice.
#include <algorithm>

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

Types infer_placed(Inference& args) {
  const infer::Type& g = infer::computable(args, 0);
  return {infer::make(g, g.dtype, args.integers(1))};
}

// Reads the gradient where `inside`, else 0.
Val placed(const Lowering& l, BodyBuilder& b, Val inside, std::span<const Expr> from) {
  const Tensor& g = l.tensor(0);
  const Val zero = b.cast(b.constant(DType::i64, std::int64_t{0}), g.dtype);
  return b.load_if(inside, zero, g.buffer, g.dtype, g.buffer_indices(from));
}

// --- select
// -----------------------------------------------------------------------------------------

void lower_select(Lowering& l) {
  const graph::Type& r = l.result_type();
  const std::size_t dim = l.args().dim(l.args().constant_integer(2), r.rank());
  const Expr index = wrapped_index(l.args().integer(3), r.sizes[dim]);
  l.result(l.pointwise(r.sizes, r.dtype, [&](BodyBuilder& b, Indices i) {
    std::vector<Expr> from(i.begin(), i.end());
    from.erase(from.begin() + static_cast<std::ptrdiff_t>(dim));
    return placed(l, b, b.binary(Opcode::equal, b.index(i[dim]), b.index(index)), from);
  }));
}

void ref_select(Evaluation& e) {
  RefTensor& r = e.result();
  const std::size_t dim = e.dim(e.integer(2), r.rank());
  const std::int64_t index = e.integer(3) < 0 ? e.integer(3) + r.sizes[dim] : e.integer(3);
  for_each_index(e.tensor(0).sizes, [&](std::span<const std::int64_t> i, std::size_t p) {
    std::vector<std::int64_t> to(i.begin(), i.end());
    to.insert(to.begin() + static_cast<std::ptrdiff_t>(dim), index);
    r.copy_element(r.at(to), e.tensor(0), p);
  });
}

// --- slice
// ------------------------------------------------------------------------------------------

void lower_slice(Lowering& l) {
  const graph::Type& r = l.result_type();
  const std::size_t dim = l.args().dim(l.args().constant_integer(2), r.rank());
  const Slice slice = slice_of(l.context(), r.sizes[dim], l.args().integer(3), l.args().integer(4),
                               l.args().constant_integer(5));
  l.result(l.pointwise(r.sizes, r.dtype, [&](BodyBuilder& b, Indices i) {
    const Expr offset = i[dim] - slice.start;
    std::vector<Expr> from(i.begin(), i.end());
    from[dim] = floordiv(offset, slice.step);
    const Val zero = b.constant(DType::i64, std::int64_t{0});
    Val inside = b.logical_and(b.binary(Opcode::less_equal, zero, b.index(offset)),
                               b.less(b.index(from[dim]), b.index(slice.length)));
    if (slice.step != 1) {
      inside =
          b.logical_and(inside, b.binary(Opcode::equal, b.index(mod(offset, slice.step)), zero));
    }
    return placed(l, b, inside, from);
  }));
}

void ref_slice(Evaluation& e) {
  RefTensor& r = e.result();
  const std::size_t dim = e.dim(e.integer(2), r.rank());
  const std::int64_t size = r.sizes[dim];
  std::int64_t start = e.integer(3);
  if (start < 0) start += size;
  start = std::clamp<std::int64_t>(start, 0, size);
  for_each_index(e.tensor(0).sizes, [&](std::span<const std::int64_t> i, std::size_t p) {
    std::vector<std::int64_t> to(i.begin(), i.end());
    to[dim] = start + to[dim] * e.integer(5);
    r.copy_element(r.at(to), e.tensor(0), p);
  });
}

// --- dropout
// ----------------------------------------------------------------------------------------

Types infer_dropout(Inference& args) {
  const infer::Type& g = infer::computable(args, 0);
  return {infer::broadcast_all(args, {0, 1}, g.dtype)};
}

void lower_dropout(Lowering& l) {
  const graph::Type& r = l.result_type();
  const DType compute = abi::compute_type(r.dtype);
  l.result(l.pointwise(r.sizes, r.dtype, [&](BodyBuilder& b, Indices i) {
    const Val g = b.cast(l.element(b, 0, i, compute), compute);
    const Val mask = b.cast(l.element(b, 1, i, compute), compute);
    return b.mul(b.mul(g, mask), b.constant(compute, l.args().real(2)));
  }));
}

void ref_dropout(Evaluation& e) {
  for (std::size_t p = 0; p < e.result().count(); ++p) {
    e.result().set(p, e.tensor(0).real(p) * e.tensor(1).real(p) * e.real(2));
  }
}

// --- Samples
// ----------------------------------------------------------------------------------------

std::vector<DType> floats() { return {DType::f32, DType::bf16}; }

std::vector<graph::Sample> select_samples() {
  return {{"last",
           [](SampleBuilder& s) {
             const Expr n = s.size(3);
             return Args{s.tensor({n}), Sizes{n, s.constant(4)}, s.constant(1), s.constant(-1)};
           },
           floats()}};
}
std::vector<graph::Sample> slice_samples() {
  return {{"steps",
           [](SampleBuilder& s) {
             const Expr n = s.size(3);
             return Args{s.tensor({n, s.constant(3)}),
                         Sizes{n, s.constant(9)},
                         s.constant(1),
                         s.constant(2),
                         s.constant(-1),
                         s.constant(2)};
           },
           floats()},
          {"tail",
           [](SampleBuilder& s) {
             const Expr n = s.size(3);
             return Args{s.tensor({n, s.constant(5)}),
                         Sizes{n, s.constant(9)},
                         s.constant(1),
                         s.constant(4),
                         s.constant(std::numeric_limits<std::int64_t>::max()),
                         s.constant(1)};
           },
           floats()}};
}
std::vector<graph::Sample> dropout_samples() {
  return {{"half",
           [](SampleBuilder& s) {
             return Args{s.free_tensor({3, 4}),
                         s.tensor(DType::boolean, {s.size(3), s.size(4)}, 0, 1), 2.0};
           },
           floats()}};
}

constexpr OpDef kRows[] = {
    {.name = "native_dropout_backward",
     .schema = "(grad_output: tensor, mask: tensor, scale: real) -> tensor",
     .doc = "grad_output * mask * scale.",
     .traits = kPointwise,
     .infer = infer_dropout,
     .lower = lower_dropout,
     .reference = ref_dropout,
     .aten = "aten::native_dropout_backward",
     .samples = dropout_samples},
    {.name = "select_backward",
     .schema = "(grad_output: tensor, input_sizes: integer[], dim: integer, index: integer)"
               " -> tensor",
     .doc = "Zeros with grad_output at one index of a dimension.",
     .infer = infer_placed,
     .lower = lower_select,
     .reference = ref_select,
     .aten = "aten::select_backward",
     .samples = select_samples},
    {.name = "slice_backward",
     .schema = "(grad_output: tensor, input_sizes: integer[], dim: integer, start: integer, "
               "end: integer, step: integer) -> tensor",
     .doc = "Zeros with grad_output at every step-th index from start to end.",
     .infer = infer_placed,
     .lower = lower_slice,
     .reference = ref_slice,
     .aten = "aten::slice_backward",
     .samples = slice_samples},
};

}  // namespace

std::span<const graph::OpDef> shape_backward_ops() { return kRows; }

}  // namespace inkle::ops
