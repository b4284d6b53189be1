// Rarer ops and gradients composed of other rows, in f32 and f64: their steps would round more
// often than eager does in narrower floats.
#include <cmath>
#include <limits>
#include <numbers>

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

// Elements that are compared with each one of a tensor, up to this many: beyond it eager's search
// is quicker.
constexpr std::int64_t kFewElements = 64;

class Steps {
 public:
  Steps(Builder& builder, const Node& node) : b(builder), node_(node) {}

  [[nodiscard]] ValueId operator[](std::size_t arg) const {
    return std::get<ValueId>(node_.args[arg]);
  }
  [[nodiscard]] const Argument& arg(std::size_t i) const { return node_.args[i]; }
  [[nodiscard]] bool has(std::size_t arg) const {
    return std::holds_alternative<ValueId>(node_.args[arg]);
  }
  ValueId operator()(std::string_view op, std::vector<Argument> args) {
    return b.node(op, std::move(args));
  }
  [[nodiscard]] Expr integer(std::int64_t v) const { return b.integer(v); }

  Builder& b;

 private:
  const Node& node_;
};

const Type& wide_float(Inference& in, std::size_t arg) {
  const Type& x = float_tensor(in, arg);
  if (x.dtype != DType::f32 && x.dtype != DType::f64) {
    unsupported("{} in {}", in.op().name, abi::name_of(x.dtype));
  }
  return x;
}
void same_dtype(Inference& in, std::initializer_list<std::size_t> args) {
  for (const std::size_t arg : args) {
    if (in.tensor(arg).dtype != in.tensor(*args.begin()).dtype) {
      unsupported("{}: operands of two dtypes", in.op().name);
    }
  }
}
Types infer_same(Inference& in) {
  const Type& x = wide_float(in, 0);
  return {infer::make(x, x.dtype, x.sizes)};
}

// --- mvlgamma: (self, p)

std::vector<ValueId> decompose_mvlgamma(Builder& b, const Node& node) {
  Steps s(b, node);
  const Inference in(b.graph(), *node.op, node.args);
  const std::int64_t p = in.constant_integer(1);
  ValueId sum = s("lgamma", {s[0]});
  for (std::int64_t j = 1; j < p; ++j) {
    const ValueId shifted = s("sub", {s[0], 0.5 * static_cast<double>(j)});
    sum = s("add", {sum, s("lgamma", {shifted})});
  }
  const double level = static_cast<double>(p * (p - 1)) / 4 * std::log(std::numbers::pi);
  return {s("add", {sum, level})};
}

// --- dist: (self, other, p)

Types infer_dist(Inference& in) {
  const Type& x = wide_float(in, 0);
  (void)infer::broadcast(in, x.sizes, wide_float(in, 1).sizes);
  same_dtype(in, {0, 1});
  return {infer::make(x, x.dtype, {})};
}
std::vector<ValueId> decompose_dist(Builder& b, const Node& node) {
  Steps s(b, node);
  return {s("linalg_vector_norm", {s("sub", {s[0], s[1]}), s.arg(2)})};
}

// --- addr: (self, vec1, vec2, beta, alpha)

Types infer_addr(Inference& in) {
  const Type &x = wide_float(in, 0), &v = wide_float(in, 1), &w = wide_float(in, 2);
  same_dtype(in, {0, 1, 2});
  if (v.rank() != 1 || w.rank() != 1) in.fail("needs two vectors");
  const Sizes sizes = {v.sizes[0], w.sizes[0]};
  (void)infer::broadcast(in, x.sizes, sizes);
  return {infer::make(x, x.dtype, sizes)};
}
std::vector<ValueId> decompose_addr(Builder& b, const Node& node) {
  Steps s(b, node);
  const Inference in(b.graph(), *node.op, node.args);
  const ValueId column = s("unsqueeze", {s[1], s.integer(1)});
  const ValueId outer = s("mul", {s("mul", {column, s.arg(4)}), s[2]});
  if (in.real(3) == 0) return {outer};  // self may hold NaN
  return {s("add", {s("mul", {s[0], s.arg(3)}), outer})};
}

// --- trace: (self)

Types infer_trace(Inference& in) {
  const Type& x = infer::computable(in, 0);
  if (x.rank() != 2) in.fail("needs a matrix");
  return {infer::make(x, abi::is_float(x.dtype) ? x.dtype : DType::i64, {})};
}
std::vector<ValueId> decompose_trace(Builder& b, const Node& node) {
  Steps s(b, node);
  return {s("sum", {s("diagonal", {s[0]})})};
}

// --- angle of real numbers: (self)

std::vector<ValueId> decompose_angle(Builder& b, const Node& node) {
  Steps s(b, node);
  const DType dtype = b.type(s[0]).dtype;
  const ValueId flat =
      s("where", {s("lt", {s[0], 0.0}), b.full({}, std::numbers::pi, dtype), b.full({}, 0, dtype)});
  return {s("where", {s("isnan", {s[0]}), s[0], flat})};
}

// --- count_nonzero over dimensions: (self, dim)

Types infer_count(Inference& in) {
  const Type& x = infer::computable(in, 0);
  const Axes axes = axes_of(in, 1, x.rank());
  return {infer::make(x, DType::i64, axes.result(in.context(), x.sizes, false))};
}
std::vector<ValueId> decompose_count(Builder& b, const Node& node) {
  Steps s(b, node);
  const ValueId counts = s("_to_copy", {s("ne", {s[0], s.integer(0)}), DType::i64});
  return {s("sum_dim", {counts, s.arg(1), false})};
}

// --- bucketize: (self, boundaries, out_int32, right); isin: (elements, test, assume_unique,
// invert)

void few_elements(Inference& in, std::size_t arg) {
  const auto count = sym::product(in.context(), in.tensor(arg).sizes).constant();
  if (!count || *count > kFewElements) unsupported("{}: many elements to search", in.op().name);
}
Types infer_bucketize(Inference& in) {
  const Type &x = infer::computable(in, 0), &bounds = infer::computable(in, 1);
  if (bounds.rank() != 1) in.fail("boundaries are a vector");
  same_dtype(in, {0, 1});
  few_elements(in, 1);
  return {infer::make(x, in.boolean(2) ? DType::i32 : DType::i64, x.sizes)};
}
// Boundaries below the element; a NaN lies beyond all of them.
std::vector<ValueId> decompose_bucketize(Builder& b, const Node& node) {
  Steps s(b, node);
  const Inference in(b.graph(), *node.op, node.args);
  const ValueId column = s("unsqueeze", {s[0], s.integer(-1)});
  const ValueId beyond = s(in.boolean(3) ? "gt" : "ge", {s[1], column});
  const ValueId below = s("_to_copy", {s("logical_not", {beyond}), DType::i64});
  const ValueId count = s("sum_dim", {below, std::vector<Expr>{s.integer(-1)}, false});
  return {in.boolean(2) ? s("_to_copy", {count, DType::i32}) : count};
}
Types infer_isin(Inference& in) {
  const Type& x = infer::computable(in, 0);
  (void)infer::computable(in, 1);
  same_dtype(in, {0, 1});
  few_elements(in, 1);
  return {infer::make(x, DType::boolean, x.sizes)};
}
std::vector<ValueId> decompose_isin(Builder& b, const Node& node) {
  Steps s(b, node);
  const Inference in(b.graph(), *node.op, node.args);
  const ValueId tests = s("reshape", {s[1], Sizes{s.integer(-1)}});
  const ValueId equal = s("eq", {s("unsqueeze", {s[0], s.integer(-1)}), tests});
  const ValueId found = s("any_dim", {equal, s.integer(-1)});
  return {in.boolean(3) ? s("logical_not", {found}) : found};
}

// --- soft_margin_loss: (self, target, reduction), its gradient: (grad, self, target, reduction)

Types infer_margin(Inference& in) {
  const Type& x = wide_float(in, 0);
  same_dtype(in, {0, 1});
  const Sizes sizes = infer::broadcast(in, x.sizes, in.tensor(1).sizes);
  return {infer::make(x, x.dtype, in.constant_integer(2) == 0 ? sizes : Sizes{})};
}
std::vector<ValueId> decompose_margin(Builder& b, const Node& node) {
  Steps s(b, node);
  const Inference in(b.graph(), *node.op, node.args);
  const ValueId power = s("exp", {s("mul", {s("neg", {s[1]}), s[0]})});
  const ValueId each = s("log1p", {power});
  const std::int64_t reduction = in.constant_integer(2);
  return {reduction == 0 ? each : s(reduction == 1 ? "mean" : "sum", {each})};
}
// Divides by the number of elements for a mean.
ValueId averaged(Steps& s, ValueId gradient, std::int64_t reduction) {
  if (reduction != 1) return gradient;
  const Sizes& sizes = s.b.type(gradient).sizes;
  return s("div", {gradient, sym::product(s.b.context(), sizes)});
}
Types infer_loss_backward(Inference& in) {
  const Type& x = wide_float(in, 1);
  same_dtype(in, {0, 1, 2});
  if (in.tensor(2).sizes != x.sizes) unsupported("{}: a broadcast target", in.op().name);
  return {infer::make(x, x.dtype, x.sizes)};
}
std::vector<ValueId> decompose_margin_backward(Builder& b, const Node& node) {
  Steps s(b, node);
  const Inference in(b.graph(), *node.op, node.args);
  const ValueId against = s("neg", {s[2]});
  const ValueId power = s("exp", {s("mul", {against, s[1]})});
  const ValueId share = s("div", {power, s("add", {power, 1.0})});
  const ValueId each = s("mul", {s("mul", {against, share}), s[0]});
  return {averaged(s, each, in.constant_integer(3))};
}

// --- binary_cross_entropy_backward: (grad, self, target, weight, reduction)

std::vector<ValueId> decompose_entropy_backward(Builder& b, const Node& node) {
  Steps s(b, node);
  const Inference in(b.graph(), *node.op, node.args);
  const ValueId rest = s("rsub", {s[1], 1.0});
  const ValueId variance = s("clamp_min", {s("mul", {rest, s[1]}), 1e-12});
  ValueId each = s("div", {s("mul", {s[0], s("sub", {s[1], s[2]})}), variance});
  if (s.has(3)) each = s("mul", {each, s[3]});
  return {averaged(s, each, in.constant_integer(4))};
}

// --- glu_backward: (grad, self, dim)

Types infer_second(Inference& in) {
  const Type& x = wide_float(in, 1);
  same_dtype(in, {0, 1});
  return {infer::make(x, x.dtype, x.sizes)};
}
std::vector<ValueId> decompose_glu_backward(Builder& b, const Node& node) {
  Steps s(b, node);
  const Inference in(b.graph(), *node.op, node.args);
  const Type x = b.type(s[1]);
  const std::size_t dim = in.dim(in.constant_integer(2), x.rank());
  const Expr axis = s.integer(static_cast<std::int64_t>(dim)), half = floordiv(x.sizes[dim], 2);
  const ValueId first = s("slice", {s[1], axis, s.integer(0), half});
  const ValueId second = s("slice", {s[1], axis, half, x.sizes[dim]});
  const ValueId gate = s("sigmoid", {second});
  const ValueId to_first = s("mul", {gate, s[0]});
  const ValueId slope = s("mul", {s("rsub", {gate, 1.0}), to_first});
  return {s("cat", {std::vector<ValueId>{to_first, s("mul", {slope, first})}, axis})};
}

// --- _prelu_kernel_backward: (grad, self, weight) -> gradients of self and weight

Types infer_prelu_backward(Inference& in) {
  const Type& x = wide_float(in, 1);
  same_dtype(in, {0, 1, 2});
  const Type result = infer::make(x, x.dtype, infer::broadcast(in, x.sizes, in.tensor(2).sizes));
  return {result, result};
}
std::vector<ValueId> decompose_prelu_backward(Builder& b, const Node& node) {
  Steps s(b, node);
  const ValueId above = s("gt", {s[1], 0.0});
  const ValueId none = b.full({}, 0, b.type(s[1]).dtype);
  return {s("where", {above, s[0], s("mul", {s[2], s[0]})}),
          s("where", {above, none, s("mul", {s[1], s[0]})})};
}

// --- logit_backward: (grad, self, eps?)

std::vector<ValueId> decompose_logit_backward(Builder& b, const Node& node) {
  Steps s(b, node);
  const Inference in(b.graph(), *node.op, node.args);
  const DType dtype = b.type(s[1]).dtype;
  const bool clamps = !in.is_none(2);
  const double low = clamps ? in.real(2) : 0;
  const ValueId inside = s("div", {s[0], s("mul", {s[1], s("rsub", {s[1], 1.0})})});
  const ValueId outside = s("logical_or", {s("lt", {s[1], low}), s("gt", {s[1], 1 - low})});
  const double beyond = clamps ? 0 : std::numeric_limits<double>::quiet_NaN();
  return {s("where", {outside, b.full({}, beyond, dtype), inside})};
}

// --- Samples

Argument matrix(SampleBuilder& s, double low = -2, double high = 2) {
  return s.tensor({s.size(3), s.size(6)}, low, high);
}
template <int count>
std::vector<Argument> matrices(SampleBuilder& s) {
  std::vector<Argument> list;
  for (int i = 0; i < count; ++i) list.push_back(matrix(s));
  return list;
}
using Make = std::vector<Argument> (*)(SampleBuilder&);
template <Make make>
std::vector<Sample> wide_samples() {
  return {{"matrix", make, {DType::f32, DType::f64}}};
}

std::vector<Argument> sample_mvlgamma(SampleBuilder& s) {
  return {matrix(s, 1.5, 6), s.constant(3)};
}
std::vector<Argument> sample_addr(SampleBuilder& s) {
  return {matrix(s), s.tensor({s.size(3)}), s.tensor({s.size(6)}), 0.5, 2.0};
}
std::vector<Argument> sample_count(SampleBuilder& s) {
  return {matrix(s), std::vector<Expr>{s.constant(0)}};
}
std::vector<Argument> sample_search(SampleBuilder& s) {
  return {matrix(s), s.tensor({s.constant(5)})};
}
std::vector<Argument> sample_margin(SampleBuilder& s) {
  return {matrix(s), matrix(s), s.constant(1)};
}
std::vector<Argument> sample_margin_backward(SampleBuilder& s) {
  return {s.tensor({}), matrix(s), matrix(s), s.constant(1)};
}
std::vector<Argument> sample_entropy_backward(SampleBuilder& s) {
  return {s.tensor({}), matrix(s, 0.1, 0.9), matrix(s, 0, 1), matrix(s), s.constant(1)};
}
std::vector<Argument> sample_glu(SampleBuilder& s) {
  return {s.tensor({s.constant(3), s.constant(4)}), s.tensor({s.constant(3), s.constant(8)}),
          s.constant(-1)};
}
std::vector<Argument> sample_logit(SampleBuilder& s) {
  return {matrix(s), matrix(s, 0.1, 0.9), 0.05};
}

constexpr OpDef row(std::string_view name, std::string_view schema, std::string_view aten,
                    std::string_view doc, Types (*infer)(Inference&),
                    std::vector<ValueId> (*decompose)(Builder&, const Node&),
                    void (*reference)(Evaluation&), std::vector<Sample> (*samples)()) {
  return {.name = name,
          .schema = schema,
          .doc = doc,
          .infer = infer,
          .decompose = decompose,
          .reference = reference,
          .aten = aten,
          .samples = samples};
}

constexpr OpDef kCompositeFloat[] = {
    row("_prelu_kernel_backward",
        "(grad_output: tensor, self: tensor, weight: tensor) -> tensor, tensor",
        "aten::_prelu_kernel_backward", "Gradients of prelu.", infer_prelu_backward,
        decompose_prelu_backward, composite::ref_prelu_backward, wide_samples<matrices<3>>),
    row("addr",
        "(self: tensor, vec1: tensor, vec2: tensor, beta: scalar = 1, alpha: scalar = 1) "
        "-> tensor",
        "aten::addr", "beta * self + alpha * the outer product of two vectors.", infer_addr,
        decompose_addr, composite::ref_addr, wide_samples<sample_addr>),
    row("angle", "(self: tensor) -> tensor", "aten::angle", "Angle of a real number: pi below 0.",
        infer_same, decompose_angle, composite::ref_angle, wide_samples<matrices<1>>),
    row("binary_cross_entropy_backward",
        "(grad_output: tensor, self: tensor, target: tensor, weight: optional_tensor = none, "
        "reduction: integer = 1) -> tensor",
        "aten::binary_cross_entropy_backward", "Gradient of binary_cross_entropy.",
        infer_loss_backward, decompose_entropy_backward,
        composite::ref_binary_cross_entropy_backward, wide_samples<sample_entropy_backward>),
    row("bucketize",
        "(self: tensor, boundaries: tensor, out_int32: boolean = false, right: boolean = false) "
        "-> tensor",
        "aten::bucketize.Tensor", "How many of a few sorted boundaries are below each element.",
        infer_bucketize, decompose_bucketize, composite::ref_bucketize,
        wide_samples<sample_search>),
    row("count_nonzero_dims", "(self: tensor, dim: integer_list) -> tensor",
        "aten::count_nonzero.dim_IntList", "The number of elements that are not 0.", infer_count,
        decompose_count, composite::ref_count_nonzero, wide_samples<sample_count>),
    row("dist", "(self: tensor, other: tensor, p: scalar = 2) -> tensor", "aten::dist",
        "Norm of the difference.", infer_dist, decompose_dist, composite::ref_dist,
        wide_samples<matrices<2>>),
    row("glu_backward", "(grad_output: tensor, self: tensor, dim: integer) -> tensor",
        "aten::glu_backward", "Gradient of glu.", infer_second, decompose_glu_backward,
        composite::ref_glu_backward, wide_samples<sample_glu>),
    row("isin",
        "(elements: tensor, test_elements: tensor, assume_unique: boolean = false, "
        "invert: boolean = false) -> tensor",
        "aten::isin.Tensor_Tensor", "Whether each element is one of a few others.", infer_isin,
        decompose_isin, composite::ref_isin, wide_samples<sample_search>),
    row("logit_backward",
        "(grad_output: tensor, self: tensor, eps: optional_real = none) -> tensor",
        "aten::logit_backward", "Gradient of logit.", infer_second, decompose_logit_backward,
        composite::ref_logit_backward, wide_samples<sample_logit>),
    row("mvlgamma", "(self: tensor, p: integer) -> tensor",
        "aten::mvlgamma aten::special_multigammaln",
        "Logarithm of the multivariate gamma function.", infer_same, decompose_mvlgamma,
        composite::ref_mvlgamma, wide_samples<sample_mvlgamma>),
    row("soft_margin_loss", "(self: tensor, target: tensor, reduction: integer = 1) -> tensor",
        "aten::soft_margin_loss", "log(1 + exp(-target * self)).", infer_margin, decompose_margin,
        composite::ref_soft_margin_loss, wide_samples<sample_margin>),
    row("soft_margin_loss_backward",
        "(grad_output: tensor, self: tensor, target: tensor, reduction: integer) -> tensor",
        "aten::soft_margin_loss_backward", "Gradient of soft_margin_loss.", infer_loss_backward,
        decompose_margin_backward, composite::ref_soft_margin_loss_backward,
        wide_samples<sample_margin_backward>),
    row("trace", "(self: tensor) -> tensor", "aten::trace", "Sum of a matrix's diagonal.",
        infer_trace, decompose_trace, composite::ref_trace, wide_samples<matrices<1>>),
};

}  // namespace

std::span<const OpDef> composite_float_ops() { return kCompositeFloat; }

}  // namespace inkle::ops
