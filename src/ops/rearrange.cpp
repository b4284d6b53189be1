// Ops that permute or scatter elements: shuffled channels and pixels, diagonals written, reads and
// un-pooling by flat positions.
#include "base/error.h"
#include "ops/axes.h"
#include "ops/composite_reference.h"
#include "ops/infer.h"
#include "ops/samples.h"
#include "ops/table.h"

namespace inkle::ops {
namespace {

using graph::Argument;
using graph::Builder;
using graph::Node;
using graph::OpDef;
using graph::Sample;
using graph::ValueId;
using infer::Types;

// --- channel_shuffle: (self, groups); pixel_unshuffle: (self, factor)

Types infer_channels(Inference& in) {
  const Type& x = infer::computable(in, 0);
  const std::int64_t groups = in.constant_integer(1);
  if (x.rank() < 3 || groups <= 0) in.fail("needs channels and groups");
  if (!in.context().guard_equal(mod(x.sizes[1], groups), in.context().constant(0))) {
    in.fail("groups do not divide the channels");
  }
  return {infer::make(x, x.dtype, x.sizes)};
}
std::vector<ValueId> decompose_channels(Builder& b, const Node& node) {
  const ValueId x = operand_of(node, 0);
  const Sizes sizes = b.type(x).sizes;
  const Expr groups = std::get<Expr>(node.args[1]);
  Sizes split = sizes;
  split[1] = floordiv(sizes[1], groups);
  split.insert(split.begin() + 1, groups);
  const ValueId parts = b.node("reshape", {x, split});
  return {b.node("reshape", {b.node("transpose", {parts, b.integer(1), b.integer(2)}), sizes})};
}

Types infer_unshuffle(Inference& in) {
  const Type& x = infer::computable(in, 0);
  const std::int64_t f = in.constant_integer(1);
  if (x.rank() < 3 || f <= 0) in.fail("needs channels, rows and columns, and a positive factor");
  Sizes sizes = x.sizes;
  const std::size_t c = x.rank() - 3;
  for (const std::size_t d : {c + 1, c + 2}) {
    if (!in.context().guard_equal(mod(sizes[d], f), in.context().constant(0))) {
      in.fail("the factor does not divide rows and columns");
    }
    sizes[d] = floordiv(sizes[d], f);
  }
  sizes[c] = sizes[c] * (f * f);
  return {infer::make(x, x.dtype, std::move(sizes))};
}
std::vector<ValueId> decompose_unshuffle(Builder& b, const Node& node) {
  const ValueId x = operand_of(node, 0);
  const Sizes from = b.type(x).sizes;
  const Expr f = std::get<Expr>(node.args[1]);
  const std::size_t c = from.size() - 3;
  Sizes split(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(c)), merged = split;
  const Expr rows = floordiv(from[c + 1], f), columns = floordiv(from[c + 2], f);
  split.insert(split.end(), {from[c], rows, f, columns, f});
  merged.insert(merged.end(), {from[c] * f * f, rows, columns});
  std::vector<Expr> order;
  for (std::size_t d = 0; d <= c; ++d) order.push_back(b.integer(static_cast<std::int64_t>(d)));
  for (const std::size_t d : {2, 4, 1, 3}) {
    order.push_back(b.integer(static_cast<std::int64_t>(c + d)));
  }
  const ValueId parts = b.node("reshape", {x, split});
  return {b.node("reshape", {b.node("permute", {parts, order}), merged})};
}

// --- Diagonals: (self, offset, dim1, dim2) to a matrix of zeros; (grad, sizes, offset, dim1,
// dim2); (self, src, offset, dim1, dim2)

struct Diagonal {
  std::size_t dim1, dim2;
  std::int64_t offset;
};
Diagonal diagonal_of(const Inference& in, std::size_t first, std::size_t rank) {
  const Diagonal d{in.dim(in.constant_integer(first + 1), rank),
                   in.dim(in.constant_integer(first + 2), rank), in.constant_integer(first)};
  if (d.dim1 == d.dim2) in.fail("the two dimensions must differ");
  return d;
}
Expr diagonal_length(const Diagonal& d, const Sizes& sizes) {
  const Expr rows = d.offset < 0 ? sizes[d.dim1] + d.offset : sizes[d.dim1];
  const Expr columns = d.offset > 0 ? sizes[d.dim2] - d.offset : sizes[d.dim2];
  return rows == columns ? rows : sym::min(rows, columns);
}

Types infer_diag_embed(Inference& in) {
  const Type& x = infer::computable(in, 0);
  if (x.rank() == 0) in.fail("needs a dimension");
  const Diagonal d = diagonal_of(in, 1, x.rank() + 1);
  const Expr side = x.sizes.back() + std::abs(d.offset);
  Sizes sizes;
  std::size_t next = 0;
  for (std::size_t k = 0; k <= x.rank(); ++k) {
    sizes.push_back(k == d.dim1 || k == d.dim2 ? side : x.sizes[next++]);
  }
  return {infer::make(x, x.dtype, std::move(sizes))};
}
Types infer_diagonal_backward(Inference& in) {
  const Type& g = infer::computable(in, 0);
  const Sizes sizes = in.integers(1);
  (void)diagonal_of(in, 2, sizes.size());
  return {infer::make(g, g.dtype, sizes)};
}
Types infer_diagonal_scatter(Inference& in) {
  const Type &x = infer::computable(in, 0), &src = infer::computable(in, 1);
  const Diagonal d = diagonal_of(in, 2, x.rank());
  if (src.dtype != x.dtype || src.rank() + 1 != x.rank()) in.fail("src does not fit self");
  if (!in.context().guard_equal(src.sizes.back(), diagonal_length(d, x.sizes))) {
    in.fail("src does not fit the diagonal");
  }
  infer::refuse_overlap(in);
  return {infer::make(x, x.dtype, x.sizes)};
}
// The diagonal `src` in a tensor that is `otherwise` elsewhere.
void write_diagonal(Lowering& l, const Diagonal& d, const Tensor& src,
                    const ElementFunction& otherwise) {
  const graph::Type& r = l.result_type();
  l.result(l.pointwise(r.sizes, r.dtype, [&](BodyBuilder& b, Indices i) {
    const Expr row = i[d.dim1], column = i[d.dim2];
    std::vector<Expr> at;
    for (std::size_t k = 0; k < i.size(); ++k) {
      if (k != d.dim1 && k != d.dim2) at.push_back(i[k]);
    }
    const Expr position = d.offset < 0 ? row + d.offset : row;
    at.push_back(position);
    Val here =
        b.binary(Opcode::equal, b.index(column - row), b.index(l.context().constant(d.offset)));
    const Val zero = b.constant(DType::i64, std::int64_t{0});
    here = b.logical_and(here, b.binary(Opcode::less_equal, zero, b.index(position)));
    here = b.logical_and(here, b.less(b.index(position), b.index(src.sizes.back())));
    return b.load_if(here, otherwise(b, i), src.buffer, src.dtype, src.buffer_indices(at));
  }));
}
template <std::size_t first>
void lower_diagonal_of_zeros(Lowering& l) {
  const Tensor& src = l.tensor(0);
  write_diagonal(l, diagonal_of(l.args(), first, l.result_type().rank()), src,
                 [&](BodyBuilder& b, Indices) {
                   return b.cast(b.constant(DType::i64, std::int64_t{0}), src.dtype);
                 });
}
void lower_diagonal_scatter(Lowering& l) {
  const Tensor& x = l.tensor(0);
  write_diagonal(l, diagonal_of(l.args(), 2, x.rank()), l.tensor(1),
                 [&](BodyBuilder& b, Indices i) { return l.element(b, x, i); });
}
void reference_diagonal(Evaluation& e, std::size_t first, const RefTensor& src) {
  RefTensor& y = e.result();
  const Inference in(e.graph(), *e.node().op, e.node().args);
  const Diagonal d = diagonal_of(in, first, y.rank());
  for_each_index(src.sizes, [&](std::span<const std::int64_t> i, std::size_t p) {
    std::vector<std::int64_t> at(y.rank());
    std::size_t next = 0;
    for (std::size_t k = 0; k < y.rank(); ++k) {
      if (k != d.dim1 && k != d.dim2) at[k] = i[next++];
    }
    at[d.dim1] = i.back() + std::max<std::int64_t>(-d.offset, 0);
    at[d.dim2] = i.back() + std::max<std::int64_t>(d.offset, 0);
    y.copy_element(y.at(at), src, p);
  });
}
template <std::size_t first>
void reference_diagonal_of_zeros(Evaluation& e) {
  reference_diagonal(e, first, e.tensor(0));
}
void reference_diagonal_scatter(Evaluation& e) {
  e.result() = e.tensor(0);
  reference_diagonal(e, 2, e.tensor(1));
}

// --- take: (self, index), flat positions

Types infer_take(Inference& in) {
  const Type &x = infer::computable(in, 0), &index = infer::computable(in, 1);
  if (index.dtype != DType::i64) in.fail("an index must be i64");
  return {infer::make(x, x.dtype, index.sizes)};
}
std::vector<ValueId> decompose_take(Builder& b, const Node& node) {
  const ValueId x = operand_of(node, 0);
  const Expr count = graph::element_count(b.context(), b.type(x));
  const ValueId flat = b.node("reshape", {x, Sizes{count}});
  return {b.node("index", {flat, std::vector<ValueId>{operand_of(node, 1)}})};
}

// --- max_unpool: (self, indices, output_size, ...): indices are positions in the output's plane

template <std::size_t spatial>
Types infer_unpool(Inference& in) {
  const Type &x = float_tensor(in, 0), &index = infer::computable(in, 1);
  const Sizes output = in.integers(2);
  if (x.rank() != spatial + 1 && x.rank() != spatial + 2) in.fail("self has the wrong rank");
  if (index.dtype != DType::i64 || index.rank() != x.rank()) in.fail("indices do not fit");
  if (output.size() != spatial) in.fail("output_size has the wrong length");
  Sizes sizes(x.sizes.begin(), x.sizes.end() - static_cast<std::ptrdiff_t>(spatial));
  sizes.insert(sizes.end(), output.begin(), output.end());
  return {infer::make(x, x.dtype, std::move(sizes))};
}
template <std::size_t spatial>
std::vector<ValueId> decompose_unpool(Builder& b, const Node& node) {
  const ValueId x = operand_of(node, 0);
  const Type type = b.type(x);
  const Sizes output = std::get<std::vector<Expr>>(node.args[2]);
  const auto split = type.sizes.end() - static_cast<std::ptrdiff_t>(spatial);
  Sizes sizes(type.sizes.begin(), split);
  const Expr planes = sym::product(b.context(), sizes);
  const Sizes flat = {planes, sym::product(b.context(), Sizes(split, type.sizes.end()))};
  sizes.insert(sizes.end(), output.begin(), output.end());
  const ValueId zeros =
      b.full({planes, sym::product(b.context(), output)}, 0, type.dtype, type.device);
  const ValueId put =
      b.node("scatter", {zeros, b.integer(1), b.node("reshape", {operand_of(node, 1), flat}),
                         b.node("reshape", {x, flat})});
  return {b.node("reshape", {put, sizes})};
}

// --- Samples and rows

std::vector<Sample> samples_channels() {
  return {{"three",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {s.tensor({s.size(2), s.constant(6), s.size(5)}), s.constant(3)};
           },
           number_dtypes()}};
}
std::vector<Sample> samples_unshuffle() {
  return {
      {"two",
       [](SampleBuilder& s) -> std::vector<Argument> {
         return {s.tensor({s.size(2), s.constant(3), s.constant(4), s.constant(6)}), s.constant(2)};
       },
       number_dtypes()}};
}
std::vector<Sample> samples_diag_embed() {
  return {{"below",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {s.tensor({s.size(3), s.constant(4)}), s.constant(-2), s.constant(0),
                     s.constant(-1)};
           },
           number_dtypes()}};
}
std::vector<Sample> samples_diagonal_backward() {
  return {{"above",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {s.tensor({s.size(3), s.constant(3)}),
                     Sizes{s.constant(5), s.size(3), s.constant(4)}, s.constant(1), s.constant(0),
                     s.constant(2)};
           },
           number_dtypes()}};
}
std::vector<Sample> samples_diagonal_scatter() {
  return {{"below",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {s.tensor({s.constant(5), s.size(3), s.constant(4)}),
                     s.tensor({s.size(3), s.constant(4)}), s.constant(-1), s.constant(0),
                     s.constant(2)};
           },
           number_dtypes()}};
}
std::vector<Sample> samples_take() {
  return {{"flat",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {s.tensor({s.constant(4), s.constant(5)}),
                     s.tensor(DType::i64, {s.size(3), s.size(2)}, -20, 19)};
           },
           number_dtypes()}};
}
// One element a plane: two could be written to one position.
template <std::size_t spatial>
std::vector<Sample> samples_unpool() {
  return {{"single",
           [](SampleBuilder& s) -> std::vector<Argument> {
             Sizes sizes = {s.size(2), s.constant(3)}, output;
             double count = 1;
             for (std::size_t d = 0; d < spatial; ++d) {
               sizes.push_back(s.constant(1));
               output.push_back(s.constant(3 + static_cast<int>(d)));
               count *= 3 + static_cast<double>(d);
             }
             const Argument x = s.tensor(sizes);
             const Argument index = s.tensor(DType::i64, sizes, 0, count - 1);
             std::vector<Argument> arguments = {x, index, output};
             if (spatial == 3) {
               arguments.emplace_back(Sizes(3, s.constant(1)));
               arguments.emplace_back(Sizes(3, s.constant(0)));
             }
             return arguments;
           },
           float_dtypes(), true}};
}

constexpr OpDef kRearrange[] = {
    {.name = "channel_shuffle",
     .schema = "(self: tensor, groups: integer) -> tensor",
     .doc = "Channels of groups in turns.",
     .infer = infer_channels,
     .decompose = decompose_channels,
     .reference = composite::ref_channel_shuffle,
     .aten = "aten::channel_shuffle aten::native_channel_shuffle",
     .samples = samples_channels},
    {.name = "diag_embed",
     .schema = "(self: tensor, offset: integer = 0, dim1: integer = -2, dim2: integer = -1) "
               "-> tensor",
     .doc = "Matrices with the last dimension as a diagonal, 0 elsewhere.",
     .infer = infer_diag_embed,
     .lower = lower_diagonal_of_zeros<1>,
     .reference = reference_diagonal_of_zeros<1>,
     .aten = "aten::diag_embed",
     .samples = samples_diag_embed},
    {.name = "diagonal_backward",
     .schema = "(grad_output: tensor, input_sizes: integer_list, offset: integer, dim1: integer, "
               "dim2: integer) -> tensor",
     .doc = "Gradient of diagonal: zeros with the gradient on the diagonal.",
     .infer = infer_diagonal_backward,
     .lower = lower_diagonal_of_zeros<2>,
     .reference = reference_diagonal_of_zeros<2>,
     .aten = "aten::diagonal_backward",
     .samples = samples_diagonal_backward},
    {.name = "diagonal_scatter",
     .schema = "(self: tensor, src: tensor, offset: integer = 0, dim1: integer = 0, "
               "dim2: integer = 1) -> tensor",
     .doc = "self with src on a diagonal.",
     .infer = infer_diagonal_scatter,
     .lower = lower_diagonal_scatter,
     .reference = reference_diagonal_scatter,
     .aten = "aten::diagonal_scatter",
     .samples = samples_diagonal_scatter},
    {.name = "max_unpool2d",
     .schema = "(self: tensor, indices: tensor, output_size: integer_list) -> tensor",
     .doc = "Zeros with elements at the positions that pooling took them from.",
     .infer = infer_unpool<2>,
     .decompose = decompose_unpool<2>,
     .reference = composite::ref_unpool,
     .aten = "aten::max_unpool2d",
     .samples = samples_unpool<2>},
    {.name = "max_unpool3d",
     .schema = "(self: tensor, indices: tensor, output_size: integer_list, stride: integer_list, "
               "padding: integer_list) -> tensor",
     .doc = "Zeros with elements at the positions that pooling took them from.",
     .infer = infer_unpool<3>,
     .decompose = decompose_unpool<3>,
     .reference = composite::ref_unpool,
     .aten = "aten::max_unpool3d",
     .samples = samples_unpool<3>},
    {.name = "pixel_unshuffle",
     .schema = "(self: tensor, downscale_factor: integer) -> tensor",
     .doc = "Blocks of pixels to channels.",
     .infer = infer_unshuffle,
     .decompose = decompose_unshuffle,
     .reference = composite::ref_pixel_unshuffle,
     .aten = "aten::pixel_unshuffle",
     .samples = samples_unshuffle},
    {.name = "take",
     .schema = "(self: tensor, index: tensor) -> tensor",
     .doc = "Elements by their number in row-major order.",
     .infer = infer_take,
     .decompose = decompose_take,
     .reference = composite::ref_take,
     .aten = "aten::take",
     .samples = samples_take},
};

}  // namespace

std::span<const OpDef> rearrange_ops() { return kRearrange; }

}  // namespace inkle::ops
