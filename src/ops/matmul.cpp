// Matrix products. Floats that a library or template takes become contractions; other dtypes a
// plain sum of products. With a bias the product stays f32 until the bias is added, so that reduced
// floats are rounded once, as ATen's fused kernels do.
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
using graph::Trait;
using graph::ValueId;
using infer::Types;
using loop::ReduceOp;

// --- Shapes

void check_equal(Inference& in, Expr a, Expr b, std::string_view message) {
  if (!in.context().guard_equal(a, b)) in.fail(message);
}
// Arguments a and b: of this rank, one dtype, inner sizes equal. Result sizes (batch, m, n).
Types product_type(Inference& in, std::size_t a_arg, std::size_t b_arg, std::size_t rank) {
  const Type& a = infer::computable(in, a_arg);
  const Type& b = infer::computable(in, b_arg);
  if (a.rank() != rank || b.rank() != rank) in.fail("an operand has the wrong rank");
  if (a.dtype != b.dtype) in.fail("operands differ in dtype");
  if (a.dtype == DType::boolean) in.fail("is not defined on bool");
  if (rank == 3) check_equal(in, a.sizes[0], b.sizes[0], "batch sizes differ");
  check_equal(in, a.sizes[rank - 1], b.sizes[rank - 2], "inner sizes differ");
  Sizes sizes(a.sizes.begin(), a.sizes.end() - 1);
  sizes.push_back(b.sizes.back());
  return {infer::make(a, a.dtype, std::move(sizes))};
}
template <std::size_t rank>
Types infer_product(Inference& in) {
  return product_type(in, 0, 1, rank);
}
// self + product, self broadcast to the product.
template <std::size_t rank>
Types infer_add_product(Inference& in) {
  const Type& self = infer::computable(in, 0);
  Types types = product_type(in, 1, 2, rank);
  if (self.dtype != types[0].dtype) in.fail("operands differ in dtype");
  (void)infer::broadcast(in, self.sizes, types[0].sizes);
  return types;
}
Types infer_addbmm(Inference& in) {
  Types types = product_type(in, 1, 2, 3);
  if (infer::computable(in, 0).dtype != types[0].dtype) in.fail("operands differ in dtype");
  types[0].sizes.erase(types[0].sizes.begin());
  return types;
}
template <std::size_t matrix>
Types matrix_vector_type(Inference& in) {
  const Type& a = infer::computable(in, matrix);
  const Type& v = infer::computable(in, matrix + 1);
  if (a.rank() != 2 || v.rank() != 1) in.fail("needs a matrix and a vector");
  if (a.dtype != v.dtype) in.fail("operands differ in dtype");
  check_equal(in, a.sizes[1], v.sizes[0], "inner sizes differ");
  return {infer::make(a, a.dtype, {a.sizes[0]})};
}
Types infer_dot(Inference& in) {
  const Type& a = infer::computable(in, 0);
  const Type& b = infer::computable(in, 1);
  if (a.rank() != 1 || b.rank() != 1) in.fail("needs two vectors");
  if (a.dtype != b.dtype) in.fail("operands differ in dtype");
  check_equal(in, a.sizes[0], b.sizes[0], "sizes differ");
  return {infer::make(a, a.dtype, {})};
}
Types infer_matmul(Inference& in) {
  const Type& a = infer::computable(in, 0);
  const Type& b = infer::computable(in, 1);
  if (a.rank() == 0 || b.rank() == 0) in.fail("needs operands with dimensions");
  if (a.dtype != b.dtype) in.fail("operands differ in dtype");
  check_equal(in, a.sizes.back(), b.sizes[b.rank() == 1 ? 0 : b.rank() - 2], "inner sizes differ");
  const auto batch = [](const Type& t) {
    return t.rank() <= 2 ? Sizes{} : Sizes(t.sizes.begin(), t.sizes.end() - 2);
  };
  Sizes sizes = infer::broadcast(in, batch(a), batch(b));
  if (a.rank() > 1) sizes.push_back(a.sizes[a.rank() - 2]);
  if (b.rank() > 1) sizes.push_back(b.sizes.back());
  return {infer::make(a, a.dtype, std::move(sizes))};
}
Types infer_linear(Inference& in) {
  const Type& x = infer::computable(in, 0);
  const Type& w = infer::computable(in, 1);
  if (x.rank() == 0 || w.rank() == 0 || w.rank() > 2) in.fail("an operand has the wrong rank");
  if (x.dtype != w.dtype) in.fail("operands differ in dtype");
  check_equal(in, x.sizes.back(), w.sizes.back(), "inner sizes differ");
  Sizes sizes(x.sizes.begin(), x.sizes.end() - 1);
  if (w.rank() == 2) sizes.push_back(w.sizes[0]);
  return {infer::make(x, x.dtype, std::move(sizes))};
}

// --- Lowering

// a over (batch..., m, k), b over (batch..., k, n), of equal rank.
Tensor product_of(Lowering& l, const Tensor& a, const Tensor& b, DType dtype) {
  if (a.dtype == DType::f32 || abi::is_reduced_float(a.dtype)) return l.matmul(a, b, dtype);
  const std::size_t rank = a.rank();
  Sizes sizes(a.sizes.begin(), a.sizes.end() - 1);
  sizes.push_back(b.sizes.back());
  return l.reduce(ReduceOp::sum, sizes, {a.sizes.back()}, a.dtype, {dtype},
                  [&](BodyBuilder& body, Indices outer, Indices inner) {
                    std::vector<Expr> ia(outer.begin(), outer.end());
                    std::vector<Expr> ib = ia;
                    ia[rank - 1] = inner[0];
                    ib[rank - 2] = inner[0];
                    return body.mul(l.element(body, a, ia), l.element(body, b, ib));
                  })[0];
}
void lower_product(Lowering& l) {
  l.result(product_of(l, l.tensor(0), l.tensor(1), l.tensor(0).dtype));
}

// beta * self + alpha * product; with beta 0, NaN and infinity of self do not matter.
Tensor scaled_sum(Lowering& l, const Tensor& product, std::size_t beta_arg, std::size_t alpha_arg) {
  const Tensor& self = l.tensor(0);
  const DType dtype = l.result_type().dtype;
  const DType compute = abi::compute_type(dtype);
  const double beta = l.args().real(beta_arg), alpha = l.args().real(alpha_arg);
  return l.pointwise(product.sizes, dtype, [&](BodyBuilder& b, Indices i) {
    const auto scaled = [&](Val v, double factor) {
      return factor == 1 ? v : b.mul(v, b.cast(b.constant(DType::f64, factor), compute));
    };
    const Val p = scaled(b.cast(l.element(b, product, i), compute), alpha);
    if (beta == 0) return p;
    const Val s = b.cast(l.broadcast_element(b, self, i), compute);
    return b.add(p, scaled(s, beta));
  });
}
void lower_add_product(Lowering& l) {
  const Tensor& a = l.tensor(1);
  l.result(scaled_sum(l, product_of(l, a, l.tensor(2), abi::compute_type(a.dtype)), 3, 4));
}
void lower_addbmm(Lowering& l) {
  const Tensor& a = l.tensor(1);
  const DType compute = abi::compute_type(a.dtype);
  const Tensor products = product_of(l, a, l.tensor(2), compute);
  const Tensor sum =
      l.reduce(ReduceOp::sum, {products.sizes[1], products.sizes[2]}, {products.sizes[0]}, compute,
               {compute}, [&](BodyBuilder& b, Indices outer, Indices inner) {
                 return l.element(b, products, std::vector<Expr>{inner[0], outer[0], outer[1]});
               })[0];
  l.result(scaled_sum(l, sum, 3, 4));
}
// Memory-bound: the vector and every row are read once, so a reduction is as fast as any library.
Tensor matrix_vector(Lowering& l, const Tensor& a, const Tensor& v, DType dtype) {
  const DType compute = abi::compute_type(a.dtype);
  return l.reduce(ReduceOp::sum, {a.sizes[0]}, {a.sizes[1]}, compute, {dtype},
                  [&](BodyBuilder& b, Indices outer, Indices inner) {
                    return b.mul(
                        element_as(l, b, a, std::vector<Expr>{outer[0], inner[0]}, compute),
                        element_as(l, b, v, inner, compute));
                  })[0];
}
void lower_mv(Lowering& l) {
  l.result(matrix_vector(l, l.tensor(0), l.tensor(1), l.result_type().dtype));
}
void lower_addmv(Lowering& l) {
  const Tensor& a = l.tensor(1);
  l.result(scaled_sum(l, matrix_vector(l, a, l.tensor(2), abi::compute_type(a.dtype)), 3, 4));
}
void lower_dot(Lowering& l) {
  const Tensor &a = l.tensor(0), &v = l.tensor(1);
  const DType compute = abi::compute_type(a.dtype);
  l.result(l.reduce(ReduceOp::sum, {}, {a.sizes[0]}, compute, {a.dtype},
                    [&](BodyBuilder& b, Indices, Indices inner) {
                      return b.mul(element_as(l, b, a, inner, compute),
                                   element_as(l, b, v, inner, compute));
                    })[0]);
}

// --- Decompositions: into the forms that AOTAutograd emits

ValueId view(Builder& b, ValueId x, Sizes sizes) {
  return b.node("reshape", {x, std::move(sizes)});
}
// x[..., k] times a matrix[k, n], all leading dimensions in one.
ValueId fold_leading(Builder& b, ValueId x, ValueId matrix, const Argument& bias) {
  const Sizes sizes = b.type(x).sizes;
  Sizes result(sizes.begin(), sizes.end() - 1);
  const Expr rows = sym::product(b.context(), result);
  result.push_back(b.type(matrix).sizes[1]);
  const ValueId flat = sizes.size() == 2 ? x : view(b, x, {rows, sizes.back()});
  const auto* added = std::get_if<ValueId>(&bias);
  const ValueId y =
      added != nullptr ? b.node("addmm", {*added, flat, matrix}) : b.node("mm", {flat, matrix});
  return sizes.size() == 2 ? y : view(b, y, std::move(result));
}
std::vector<ValueId> decompose_linear(Builder& b, const Node& node) {
  const ValueId x = std::get<ValueId>(node.args[0]), w = std::get<ValueId>(node.args[1]);
  if (b.type(w).rank() == 1) {
    const ValueId y = b.node("matmul", {x, w});
    const auto* bias = std::get_if<ValueId>(&node.args[2]);
    return {bias != nullptr ? b.node("add", {y, *bias}) : y};
  }
  const ValueId wt = b.node("t", {w});
  if (b.type(x).rank() == 1) {
    const ValueId row = b.node("unsqueeze", {x, b.integer(0)});
    return {b.node("squeeze_dims",
                   {fold_leading(b, row, wt, node.args[2]), std::vector<Expr>{b.integer(0)}})};
  }
  return {fold_leading(b, x, wt, node.args[2])};
}
std::vector<ValueId> decompose_matmul(Builder& b, const Node& node) {
  const ValueId x = std::get<ValueId>(node.args[0]), y = std::get<ValueId>(node.args[1]);
  const std::size_t x_rank = b.type(x).rank(), y_rank = b.type(y).rank();
  if (x_rank == 1 && y_rank == 1) return {b.node("dot", {x, y})};
  if (x_rank == 2 && y_rank == 1) return {b.node("mv", {x, y})};
  if (y_rank == 1) {
    const ValueId column = b.node("unsqueeze", {y, b.integer(1)});
    return {
        b.node("squeeze_dims", {b.node("matmul", {x, column}), std::vector<Expr>{b.integer(-1)}})};
  }
  if (x_rank == 1) {
    const ValueId row = b.node("unsqueeze", {x, b.integer(0)});
    return {b.node("squeeze_dims", {b.node("matmul", {row, y}), std::vector<Expr>{b.integer(-2)}})};
  }
  if (y_rank == 2) return {fold_leading(b, x, y, graph::None{})};
  // Batches broadcast, then folded into one dimension.
  const Sizes xs = b.type(x).sizes, ys = b.type(y).sizes;
  const std::size_t batch_rank = std::max(x_rank, y_rank) - 2;
  Sizes batch(batch_rank, b.integer(1));
  const auto merge = [&](const Sizes& sizes) {
    const std::size_t own = sizes.size() - 2;
    for (std::size_t d = 0; d < own; ++d) {
      Expr& size = batch[batch_rank - own + d];
      if (!sizes[d].is_constant(1)) size = sizes[d];
    }
  };
  merge(ys);
  merge(xs);
  const Expr count = sym::product(b.context(), batch);
  const auto fold = [&](ValueId v, const Sizes& sizes) {
    Sizes full = batch;
    full.insert(full.end(), sizes.end() - 2, sizes.end());
    if (full != sizes) v = b.node("expand", {v, full});
    return batch_rank == 1 ? v : view(b, v, {count, sizes[sizes.size() - 2], sizes.back()});
  };
  const ValueId product = b.node("bmm", {fold(x, xs), fold(y, ys)});
  if (batch_rank == 1) return {product};
  batch.push_back(xs[x_rank - 2]);
  batch.push_back(ys.back());
  return {view(b, product, std::move(batch))};
}

// --- References

// Sum over k of a[batch, m, k] * b[batch, k, n], in the layout (batch, m, n).
RefTensor reference_of(const RefTensor& a, const RefTensor& b) {
  const std::int64_t k = a.sizes.back(), m = a.sizes[a.rank() - 2], n = b.sizes.back();
  const std::int64_t batch = a.rank() == 3 ? a.sizes[0] : 1;
  RefTensor y(a.is_real() ? DType::f64 : DType::i64, {batch, m, n});
  for_each_index(y.sizes, [&](std::span<const std::int64_t> i, std::size_t position) {
    double real = 0;
    std::int64_t integer = 0;
    for (std::int64_t j = 0; j < k; ++j) {
      const auto pa = static_cast<std::size_t>((i[0] * m + i[1]) * k + j);
      const auto pb = static_cast<std::size_t>((i[0] * k + j) * n + i[2]);
      if (a.is_real())
        real += a.real(pa) * b.real(pb);
      else
        integer += a.integer(pa) * b.integer(pb);
    }
    if (a.is_real())
      y.set(position, real);
    else
      y.set(position, integer);
  });
  return y;
}
void reference_product(Evaluation& e) {
  const RefTensor y = reference_of(e.tensor(0), e.tensor(1));
  for (std::size_t i = 0; i < y.count(); ++i) e.result().copy_element(i, y, i);
}
void add_scaled(Evaluation& e, const RefTensor& product) {
  RefTensor& y = e.result();
  const RefTensor& self = e.tensor(0);
  for_each_index(y.sizes, [&](std::span<const std::int64_t> i, std::size_t p) {
    const std::size_t s = broadcast_position(self, i);
    if (y.is_real()) {
      const double scaled = e.real(4) * product.real(p);
      y.set(p, e.real(3) == 0 ? scaled : e.real(3) * self.real(s) + scaled);
    } else {
      y.set(p, static_cast<std::int64_t>(e.real(3)) * self.integer(s) +
                   static_cast<std::int64_t>(e.real(4)) * product.integer(p));
    }
  });
}
void reference_add_product(Evaluation& e) { add_scaled(e, reference_of(e.tensor(1), e.tensor(2))); }
void reference_addbmm(Evaluation& e) {
  const RefTensor products = reference_of(e.tensor(1), e.tensor(2));
  RefTensor sum(products.dtype, {products.sizes[1], products.sizes[2]});
  for (std::size_t i = 0; i < products.count(); ++i) {
    const std::size_t p = i % sum.count();
    if (sum.is_real())
      sum.set(p, sum.real(p) + products.real(i));
    else
      sum.set(p, sum.integer(p) + products.integer(i));
  }
  add_scaled(e, sum);
}
RefTensor as_matrix(RefTensor t, std::vector<std::int64_t> sizes) {
  t.sizes = std::move(sizes);
  return t;
}
void reference_vector(Evaluation& e) {
  const RefTensor &a = e.tensor(0), &v = e.tensor(1);
  const RefTensor y = reference_of(as_matrix(a, {a.rank() == 1 ? 1 : a.sizes[0], v.sizes[0]}),
                                   as_matrix(v, {v.sizes[0], 1}));
  for (std::size_t i = 0; i < y.count(); ++i) e.result().copy_element(i, y, i);
}
void reference_addmv(Evaluation& e) {
  const RefTensor& v = e.tensor(2);
  add_scaled(e, reference_of(e.tensor(1), as_matrix(v, {v.sizes[0], 1})));
}

// --- Samples

std::vector<Sample> samples_mm() {
  return {{"small",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {s.free_tensor({5, 19}), s.free_tensor({19, 7})};
           },
           number_dtypes()},
          {"wide",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {s.free_tensor({33, 64}), s.free_tensor({64, 48})};
           },
           float_dtypes()}};
}
std::vector<Sample> samples_bmm() {
  return {{"small",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {s.free_tensor({3, 5, 19}), s.free_tensor({3, 19, 7})};
           },
           number_dtypes()}};
}
std::vector<Sample> samples_addmm() {
  return {
      {"bias",
       [](SampleBuilder& s) -> std::vector<Argument> {
         return {s.free_tensor({7}), s.free_tensor({5, 19}), s.free_tensor({19, 7})};
       },
       number_dtypes()},
      {"scaled",
       [](SampleBuilder& s) -> std::vector<Argument> {
         return {s.free_tensor({5, 7}), s.free_tensor({5, 19}), s.free_tensor({19, 7}), 0.5, 2.0};
       },
       float_dtypes()}};
}
std::vector<Sample> samples_baddbmm() {
  return {{"bias",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {s.free_tensor({3, 5, 7}), s.free_tensor({3, 5, 19}), s.free_tensor({3, 19, 7}),
                     1.0, 0.25};
           },
           float_dtypes()}};
}
std::vector<Sample> samples_addbmm() {
  return {{"bias",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {s.free_tensor({5, 7}), s.free_tensor({3, 5, 19}), s.free_tensor({3, 19, 7})};
           },
           float_dtypes()}};
}
std::vector<Sample> samples_mv() {
  return {{"small",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {s.free_tensor({5, 19}), s.free_tensor({19})};
           },
           number_dtypes()}};
}
std::vector<Sample> samples_addmv() {
  return {{"small",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {s.free_tensor({5}), s.free_tensor({5, 19}), s.free_tensor({19})};
           },
           float_dtypes()}};
}
std::vector<Sample> samples_dot() {
  return {{"small",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {s.free_tensor({19}), s.free_tensor({19})};
           },
           number_dtypes()}};
}
std::vector<Sample> samples_matmul() {
  return {{"folded",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {s.free_tensor({2, 3, 5}), s.free_tensor({5, 7})};
           },
           float_dtypes()},
          {"batched",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {s.free_tensor({2, 3, 5, 7}),
                     s.tensor({s.constant(1), s.size(3), s.size(7), s.size(4)})};
           },
           float_dtypes()}};
}
std::vector<Sample> samples_linear() {
  return {{"bias",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {s.free_tensor({2, 3, 5}), s.free_tensor({7, 5}), s.free_tensor({7})};
           },
           float_dtypes()}};
}

constexpr std::string_view kSchemaProduct = "(self: tensor, mat2: tensor) -> tensor";
constexpr std::string_view kSchemaAddProduct =
    "(self: tensor, mat1: tensor, mat2: tensor, beta: scalar = 1, alpha: scalar = 1) -> tensor";

constexpr OpDef kMatmul[] = {
    {.name = "addbmm",
     .schema = kSchemaAddProduct,
     .doc = "beta * self + alpha * the sum of a batch of matrix products.",
     .traits = Trait::contraction,
     .infer = infer_addbmm,
     .lower = lower_addbmm,
     .library = true,
     .reference = reference_addbmm,
     .aten = "aten::addbmm",
     .samples = samples_addbmm},
    {.name = "addmm",
     .schema = kSchemaAddProduct,
     .doc = "beta * self + alpha * the product of two matrices.",
     .traits = Trait::contraction,
     .infer = infer_add_product<2>,
     .lower = lower_add_product,
     .library = true,
     .reference = reference_add_product,
     .aten = "aten::addmm",
     .samples = samples_addmm},
    {.name = "addmv",
     .schema = kSchemaAddProduct,
     .doc = "beta * self + alpha * the product of a matrix and a vector.",
     .traits = Trait::reduction,
     .infer = matrix_vector_type<1>,
     .lower = lower_addmv,
     .reference = reference_addmv,
     .aten = "aten::addmv",
     .samples = samples_addmv},
    {.name = "baddbmm",
     .schema = kSchemaAddProduct,
     .doc = "beta * self + alpha * a batch of matrix products.",
     .traits = Trait::contraction,
     .infer = infer_add_product<3>,
     .lower = lower_add_product,
     .library = true,
     .reference = reference_add_product,
     .aten = "aten::baddbmm",
     .samples = samples_baddbmm},
    {.name = "bmm",
     .schema = kSchemaProduct,
     .doc = "A batch of matrix products.",
     .traits = Trait::contraction,
     .infer = infer_product<3>,
     .lower = lower_product,
     .library = true,
     .reference = reference_product,
     .aten = "aten::bmm",
     .samples = samples_bmm},
    {.name = "dot",
     .schema = kSchemaProduct,
     .doc = "Sum of products of two vectors.",
     .traits = Trait::reduction,
     .infer = infer_dot,
     .lower = lower_dot,
     .reference = reference_vector,
     .aten = "aten::dot aten::vdot",
     .samples = samples_dot},
    {.name = "linear",
     .schema = "(input: tensor, weight: tensor, bias: optional_tensor = none) -> tensor",
     .doc = "input times the transposed weight, plus bias.",
     .traits = Trait::contraction,
     .infer = infer_linear,
     .decompose = decompose_linear,
     .reference = composite::ref_linear,
     .aten = "aten::linear",
     .samples = samples_linear},
    {.name = "matmul",
     .schema = kSchemaProduct,
     .doc = "Matrix product with broadcast batches; vectors act as a row or a column.",
     .traits = Trait::contraction,
     .infer = infer_matmul,
     .decompose = decompose_matmul,
     .reference = composite::ref_matmul,
     .aten = "aten::matmul",
     .samples = samples_matmul},
    {.name = "mm",
     .schema = kSchemaProduct,
     .doc = "The product of two matrices.",
     .traits = Trait::contraction,
     .infer = infer_product<2>,
     .lower = lower_product,
     .library = true,
     .reference = reference_product,
     .aten = "aten::mm",
     .samples = samples_mm},
    {.name = "mv",
     .schema = kSchemaProduct,
     .doc = "The product of a matrix and a vector.",
     .traits = Trait::reduction,
     .infer = matrix_vector_type<0>,
     .lower = lower_mv,
     .reference = reference_vector,
     .aten = "aten::mv",
     .samples = samples_mv},
};

}  // namespace

std::span<const OpDef> matmul_ops() { return kMatmul; }

}  // namespace inkle::ops
