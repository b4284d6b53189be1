#include "lower/test_ops.h"

#include "graph/builder.h"
#include "graph/inference.h"
#include "ops/lowering.h"

namespace inkle::lower {
namespace {

using graph::Inference;
using graph::OpDef;
using graph::Trait;
using graph::Type;
using loop::BodyBuilder;
using loop::DType;
using loop::ReduceOp;
using loop::Val;
using ops::Indices;
using ops::Lowering;
using ops::Tensor;
using sym::Expr;
using Types = std::vector<Type>;

Type fresh(const Type& like, graph::Sizes sizes) { return {like.dtype, like.device, sizes, {}}; }

Types infer_same(Inference& in) { return {fresh(in.tensor(0), in.tensor(0).sizes)}; }
Types infer_outer(Inference& in) {  // rank 2 times rank 2 of the last sizes
  const Type& a = in.tensor(0);
  return {fresh(a, {a.sizes[0], in.tensor(1).sizes[1]})};
}
Types infer_transpose(Inference& in) {
  const Type& a = in.tensor(0);
  return {fresh(a, {a.sizes[1], a.sizes[0]})};
}
Types infer_flatten(Inference& in) {
  const Type& a = in.tensor(0);
  return {fresh(a, {graph::element_count(in.context(), a)})};
}
Types infer_expand(Inference& in) {
  const Type& a = in.tensor(0);
  return {fresh(a, {in.integer(1), a.sizes[0]})};
}
Types infer_rows(Inference& in) { return {fresh(in.tensor(0), {in.tensor(0).sizes[0]})}; }
Types infer_rows_twice(Inference& in) { return {infer_rows(in)[0], infer_rows(in)[0]}; }

void lower_add(Lowering& l) {
  const DType dtype = l.result_type().dtype;
  const DType compute = abi::compute_type(dtype);
  l.result(l.pointwise(l.result_type().sizes, dtype, [&](BodyBuilder& b, Indices i) {
    const Val x = b.cast(l.element(b, 0, i, compute), compute);
    const Val y = b.cast(l.element(b, 1, i, compute), compute);
    return b.add(x, y);
  }));
}

void lower_transpose(Lowering& l) {
  l.result(l.view(l.tensor(0), l.result_type().sizes, [](Indices i) {
    return std::vector<Expr>{i[1], i[0]};
  }));
}

void lower_flatten(Lowering& l) {
  const Expr n = l.tensor(0).sizes[1];
  l.result(l.view(l.tensor(0), l.result_type().sizes, [n](Indices i) {
    return std::vector<Expr>{floordiv(i[0], n), mod(i[0], n)};
  }));
}

void lower_expand(Lowering& l) {
  l.result(l.view(l.tensor(0), l.result_type().sizes,
                  [](Indices i) { return std::vector<Expr>{i[1]}; }));
}

void lower_moments(Lowering& l) {
  const Tensor& x = l.tensor(0);
  const DType dtype = x.dtype;
  const auto results =
      l.reduce(ReduceOp::welford, {x.sizes[0]}, {x.sizes[1]}, abi::compute_type(dtype),
               {dtype, dtype}, [&](BodyBuilder& b, Indices outer, Indices inner) {
                 return l.element(b, x, std::vector<Expr>{outer[0], inner[0]});
               });
  l.result(0, results[0]);
  l.result(1, results[1]);
}

void lower_row_sum(Lowering& l) {
  const Tensor& x = l.tensor(0);
  l.result(l.reduce(ReduceOp::sum, {x.sizes[0]}, {x.sizes[1]}, DType::f32, {x.dtype},
                    [&](BodyBuilder& b, Indices outer, Indices inner) {
                      return l.element(b, x, std::vector<Expr>{outer[0], inner[0]});
                    })[0]);
}

void lower_cumsum(Lowering& l) {
  l.result(l.scan(ReduceOp::sum, l.result_type().sizes, 0, DType::f32, l.result_type().dtype,
                  [&](BodyBuilder& b, Indices i) { return l.element(b, l.tensor(0), i); }));
}

// index_add(base [n, m], ids [k], updates [k, m])
void lower_index_add(Lowering& l) {
  const Tensor& base = l.tensor(0);
  l.result(l.scatter(
      base, l.tensor(2).sizes, loop::StoreMode::atomic_add,
      [&](BodyBuilder& b, Indices i) {
        const Val id = l.element(b, l.tensor(1), i.first(1));
        return std::vector<Expr>{b.indirect_wrapped(id, base.sizes[0]), i[1]};
      },
      [&](BodyBuilder& b, Indices i) { return l.element(b, l.tensor(2), i); }));
}

void lower_copy(Lowering& l) {
  l.result(l.store_into(l.tensor(0), [&](BodyBuilder& b, Indices i) {
    return l.broadcast_element(b, l.tensor(1), i);
  }));
}

void lower_mm(Lowering& l) { l.result(l.matmul(l.tensor(0), l.tensor(1), l.result_type().dtype)); }

void lower_attend(Lowering& l) {
  const Lowering::AttentionArguments arguments{.q = &l.tensor(0),
                                               .k = &l.tensor(1),
                                               .v = &l.tensor(2),
                                               .scale = 0.5,
                                               .is_causal = true,
                                               .want_lse = l.is_used(1)};
  const auto results = l.attention(arguments, l.result_type().dtype);
  l.result(0, results[0]);
  if (results.size() > 1) l.result(1, results[1]);
}

Types infer_attend(Inference& in) {
  const Type& q = in.tensor(0);
  return {fresh(q, {q.sizes[0], q.sizes[1], q.sizes[2], in.tensor(2).sizes[3]}),
          fresh(q, {q.sizes[0], q.sizes[1], q.sizes[2]})};
}

// A 3 x 3 convolution of padding 1 over the transpose of its operand's last dimensions, which is no
// buffer of its own.
void lower_conv(Lowering& l) {
  const Tensor& x = l.tensor(0);
  const Tensor view = l.view(x, {x.sizes[0], x.sizes[1], x.sizes[3], x.sizes[2]}, [](Indices i) {
    return std::vector<Expr>{i[0], i[1], i[3], i[2]};
  });
  const loop::Convolution c{
      .stride = {1, 1}, .padding = {1, 1}, .dilation = {1, 1}, .output_padding = {0, 0}};
  l.result(
      l.convolution(view, l.tensor(1), nullptr, c, l.result_type().sizes, l.result_type().dtype));
}
Types infer_conv(Inference& in) {
  const Type& x = in.tensor(0);
  return {fresh(x, {x.sizes[0], in.tensor(1).sizes[0], x.sizes[3], x.sizes[2]})};
}

void lower_wrong(Lowering& l) { l.result(l.tensor(0)); }

constexpr OpDef kRows[] = {
    {.name = "add",
     .schema = "(self: operand, other: operand) -> tensor",
     .infer = infer_same,
     .lower = lower_add},
    {.name = "attend",
     .schema = "(q: tensor, k: tensor, v: tensor) -> tensor, tensor",
     .infer = infer_attend,
     .lower = lower_attend},
    {.name = "conv",
     .schema = "(x: tensor, w: tensor) -> tensor",
     .infer = infer_conv,
     .lower = lower_conv},
    {.name = "copy_",
     .schema = "(self: tensor, source: tensor) -> tensor",
     .traits = Trait::effect,
     .infer = infer_same,
     .lower = lower_copy},
    {.name = "cumsum",
     .schema = "(self: tensor) -> tensor",
     .infer = infer_same,
     .lower = lower_cumsum},
    {.name = "expand",
     .schema = "(self: tensor, size: integer) -> tensor",
     .traits = Trait::view,
     .infer = infer_expand,
     .lower = lower_expand},
    {.name = "flatten",
     .schema = "(self: tensor) -> tensor",
     .infer = infer_flatten,
     .lower = lower_flatten},
    {.name = "index_add",
     .schema = "(self: tensor, ids: tensor, updates: tensor) -> tensor",
     .infer = infer_same,
     .lower = lower_index_add},
    {.name = "mm",
     .schema = "(self: tensor, other: tensor) -> tensor",
     .infer = infer_outer,
     .lower = lower_mm},
    {.name = "moments",
     .schema = "(self: tensor) -> tensor, tensor",
     .infer = infer_rows_twice,
     .lower = lower_moments},
    {.name = "no_lowering", .schema = "(self: tensor) -> tensor", .infer = infer_same},
    {.name = "row_sum",
     .schema = "(self: tensor) -> tensor",
     .infer = infer_rows,
     .lower = lower_row_sum},
    {.name = "transpose",
     .schema = "(self: tensor) -> tensor",
     .traits = Trait::view,
     .infer = infer_transpose,
     .lower = lower_transpose},
    {.name = "wrong",
     .schema = "(self: tensor) -> tensor",
     .infer = infer_flatten,
     .lower = lower_wrong},
};

}  // namespace

const graph::OpTable& test_table() {
  static const std::span<const OpDef> families[] = {kRows};
  static const graph::OpTable table{families};
  return table;
}

}  // namespace inkle::lower
