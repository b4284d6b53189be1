// Losses: the likelihood of classes, and means of elementwise distances.
#include <cmath>

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
using graph::Trait;
using graph::ValueId;
using infer::Types;
using loop::ReduceOp;

// --- nll_loss: (self, target, weight?, reduction, ignore_index) -> (loss, total_weight)
// self over (n, class, ...) or (class); target over the same without class.

std::size_t class_dim(std::size_t rank) { return rank == 1 ? 0 : 1; }

Types infer_nll(Inference& in) {
  const Type& x = float_tensor(in, 0);
  const Type& target = infer::computable(in, 1);
  if (x.rank() == 0 || target.rank() + 1 != x.rank()) in.fail("target lacks one dimension of self");
  if (target.dtype != DType::i64 && target.dtype != DType::u8) in.fail("target must be i64 or u8");
  const Type* weight = in.optional_tensor(2);
  if (weight != nullptr && (weight->rank() != 1 || weight->dtype != x.dtype)) {
    in.fail("the weight does not fit");
  }
  const bool each = in.constant_integer(3) == kReduceNone;
  return {infer::make(x, x.dtype, each ? target.sizes : Sizes{}), infer::make(x, x.dtype, {})};
}

struct Likelihood {
  Val loss, weight;
};
// The loss of one target and its weight; both 0 where it is to be ignored.
Likelihood likelihood(const Lowering& l, BodyBuilder& b, Indices i, DType compute) {
  const Tensor &x = l.tensor(0), &target = l.tensor(1);
  const std::size_t dim = class_dim(x.rank());
  const Val wanted = element_as(l, b, target, i, DType::i64);
  const Val ignored = b.binary(Opcode::equal, wanted, b.index(l.args().integer(4)));
  const Val safe = b.select(ignored, b.constant(DType::i64, std::int64_t{0}), wanted);
  const Expr at = b.indirect(safe, x.sizes[dim]);
  std::vector<Expr> full(i.begin(), i.end());
  full.insert(full.begin() + static_cast<std::ptrdiff_t>(dim), at);
  const Val zero = b.constant(compute, 0.0);
  Val weight = b.constant(compute, 1.0);
  if (const Tensor* weights = l.optional_tensor(2)) {
    weight = element_as(l, b, *weights, std::vector<Expr>{at}, compute);
  }
  const Val loss = b.neg(b.mul(element_as(l, b, x, full, compute), weight));
  return {b.select(ignored, zero, loss), b.select(ignored, zero, weight)};
}
void lower_nll(Lowering& l) {
  const DType dtype = l.tensor(0).dtype, compute = abi::compute_type(dtype);
  const Sizes& sizes = l.tensor(1).sizes;
  const std::int64_t reduction = l.args().constant_integer(3);
  if (reduction == kReduceNone) {
    l.result(l.pointwise(sizes, dtype, [&](BodyBuilder& b, Indices i) {
      return likelihood(l, b, i, compute).loss;
    }));
    if (l.is_used(1)) {
      l.result(1, l.pointwise({}, dtype,
                              [&](BodyBuilder& b, Indices) { return b.constant(compute, 0.0); }));
    }
    return;
  }
  const Axes axes = Axes::all(sizes.size());
  const Sizes reduced = axes.reduced(l.context(), sizes);
  const auto total = [&](bool of_weights) {
    return l.reduce(ReduceOp::sum, {}, reduced, compute, {compute},
                    [&](BodyBuilder& b, Indices outer, Indices inner) {
                      const Likelihood v = likelihood(l, b, axes.join(outer, inner), compute);
                      return of_weights ? v.weight : v.loss;
                    })[0];
  };
  const Tensor loss = total(false), weight = total(true);
  l.result(l.pointwise({}, dtype, [&](BodyBuilder& b, Indices i) {
    const Val sum = l.element(b, loss, i);
    return reduction == kReduceMean ? b.div(sum, l.element(b, weight, i)) : sum;
  }));
  if (!l.is_used(1)) return;
  l.result(1, l.pointwise({}, dtype,
                          [&](BodyBuilder& b, Indices i) { return l.element(b, weight, i); }));
}
void reference_nll(Evaluation& e) {
  const RefTensor &x = e.tensor(0), &target = e.tensor(1);
  const RefTensor* weights = e.optional_tensor(2);
  const std::size_t dim = class_dim(x.rank());
  double sum = 0, total = 0;
  for_each_index(target.sizes, [&](std::span<const std::int64_t> i, std::size_t p) {
    const std::int64_t wanted = target.integer(p);
    double loss = 0;
    if (wanted != e.integer(4)) {
      if (wanted < 0 || wanted >= x.sizes[dim]) user_error("target {} is out of range", wanted);
      std::vector<std::int64_t> at(i.begin(), i.end());
      at.insert(at.begin() + static_cast<std::ptrdiff_t>(dim), wanted);
      const double w = weights != nullptr ? weights->real(static_cast<std::size_t>(wanted)) : 1;
      loss = -w * x.real(x.at(at));
      sum += loss;
      total += w;
    }
    if (e.integer(3) == kReduceNone) e.result().set(p, loss);
  });
  if (e.integer(3) == kReduceNone) return;
  e.result().set(0, e.integer(3) == kReduceMean ? sum / total : sum);
  e.result(1).set(0, total);
}

// --- Means of elementwise distances: (self, target, reduction, ...)

Types infer_distance(Inference& in) {
  const Type &x = float_tensor(in, 0), &y = float_tensor(in, 1);
  if (x.dtype != y.dtype) unsupported("{}: operands of two dtypes", in.op().name);
  const Sizes sizes = infer::broadcast(in, x.sizes, y.sizes);
  return {infer::make(x, x.dtype, in.constant_integer(2) == kReduceNone ? sizes : Sizes{})};
}

enum class Distance { squared, absolute, smooth, huber };

// The distance as a nest's value, from the difference of operands.
Val distance_of(BodyBuilder& b, Distance kind, Val difference, double parameter) {
  const DType t = b.dtype(difference);
  if (kind == Distance::squared) return b.mul(difference, difference);
  const Val d = b.unary(Opcode::abs, difference);
  if (kind == Distance::absolute || (kind == Distance::smooth && parameter == 0)) return d;
  const Val p = b.constant(t, parameter), half = b.constant(t, 0.5);
  const Val squared = b.mul(b.mul(half, d), d);
  if (kind == Distance::smooth) {
    return b.select(b.less(d, p), b.div(squared, p), b.sub(d, b.mul(half, p)));
  }
  return b.select(b.binary(Opcode::less_equal, d, p), squared, b.mul(p, b.sub(d, b.mul(half, p))));
}
template <Distance kind>
void lower_distance(Lowering& l) {
  const Tensor &x = l.tensor(0), &y = l.tensor(1);
  const DType compute = abi::compute_type(x.dtype);
  const std::int64_t reduction = l.args().constant_integer(2);
  const double parameter =
      kind == Distance::smooth || kind == Distance::huber ? l.args().real(3) : 0;
  const auto element = [&](BodyBuilder& b, Indices i) {
    const Val a = b.cast(l.broadcast_element(b, x, i), compute);
    const Val c = b.cast(l.broadcast_element(b, y, i), compute);
    return distance_of(b, kind, b.sub(a, c), parameter);
  };
  if (reduction == kReduceNone) {
    l.result(l.pointwise(l.result_type().sizes, x.dtype, element));
    return;
  }
  // Broadcast as infer did; guards are recorded there.
  Sizes sizes = x.rank() >= y.rank() ? x.sizes : y.sizes;
  const Sizes& other = x.rank() >= y.rank() ? y.sizes : x.sizes;
  for (std::size_t d = 0; d < other.size(); ++d) {
    Expr& size = sizes[sizes.size() - other.size() + d];
    if (size.is_constant(1)) size = other[d];
  }
  const Axes axes = Axes::all(sizes.size());
  const Sizes reduced = axes.reduced(l.context(), sizes);
  const Tensor sum = l.reduce(ReduceOp::sum, {}, reduced, compute, {compute},
                              [&](BodyBuilder& b, Indices outer, Indices inner) {
                                return element(b, axes.join(outer, inner));
                              })[0];
  l.result(l.pointwise({}, x.dtype, [&](BodyBuilder& b, Indices i) {
    const Val total = l.element(b, sum, i);
    return reduction == kReduceMean ? b.div(total, count_value(b, reduced, compute)) : total;
  }));
}
double reference_distance_of(Distance kind, double d, double parameter) {
  d = std::abs(d);
  if (kind == Distance::squared) return d * d;
  if (kind == Distance::absolute || (kind == Distance::smooth && parameter == 0)) return d;
  if (kind == Distance::smooth) {
    return d < parameter ? 0.5 * d * d / parameter : d - 0.5 * parameter;
  }
  return d <= parameter ? 0.5 * d * d : parameter * (d - 0.5 * parameter);
}
template <Distance kind>
void reference_distance(Evaluation& e) {
  const RefTensor &x = e.tensor(0), &y = e.tensor(1);
  const double parameter = kind == Distance::smooth || kind == Distance::huber ? e.real(3) : 0;
  std::vector<std::int64_t> sizes = x.rank() >= y.rank() ? x.sizes : y.sizes;
  const auto& other = x.rank() >= y.rank() ? y.sizes : x.sizes;
  for (std::size_t d = 0; d < other.size(); ++d) {
    std::int64_t& size = sizes[sizes.size() - other.size() + d];
    if (size == 1) size = other[d];
  }
  double sum = 0, count = 0;
  for_each_index(sizes, [&](std::span<const std::int64_t> i, std::size_t p) {
    const double d = x.real(broadcast_position(x, i)) - y.real(broadcast_position(y, i));
    const double loss = reference_distance_of(kind, d, parameter);
    if (e.integer(2) == kReduceNone) e.result().set(p, loss);
    sum += loss;
    count += 1;
  });
  if (e.integer(2) != kReduceNone)
    e.result().set(0, e.integer(2) == kReduceMean ? sum / count : sum);
}

// --- Cross entropy: (self, target, weight?, reduction, ignore_index, label_smoothing)

Types infer_cross_entropy(Inference& in) {
  if (in.real(5) != 0) unsupported("cross_entropy_loss: label smoothing");
  if (abi::is_float(infer::computable(in, 1).dtype)) {
    unsupported("cross_entropy_loss: targets that are probabilities");
  }
  return {infer_nll(in)[0]};
}
std::vector<ValueId> decompose_cross_entropy(Builder& b, const Node& node) {
  const ValueId x = std::get<ValueId>(node.args[0]);
  const auto dim = static_cast<std::int64_t>(class_dim(b.type(x).rank()));
  const ValueId likelihoods = b.node("_log_softmax", {x, b.integer(dim), false});
  return {b.nodes("nll_loss_forward",
                  {likelihoods, node.args[1], node.args[2], node.args[3], node.args[4]})[0]};
}
std::vector<ValueId> decompose_nll(Builder& b, const Node& node) {
  return {b.nodes("nll_loss_forward", node.args)[0]};
}
Types infer_nll_only(Inference& in) { return {infer_nll(in)[0]}; }

// --- one_hot: (self, num_classes)

Types infer_one_hot(Inference& in) {
  const Type& x = infer::computable(in, 0);
  if (x.dtype != DType::i64) in.fail("needs i64");
  if (in.constant_integer(1) < 0) unsupported("one_hot: a class count that depends on data");
  Sizes sizes = x.sizes;
  sizes.push_back(in.integer(1));
  return {infer::make(x, DType::i64, std::move(sizes))};
}
void lower_one_hot(Lowering& l) {
  l.result(l.pointwise(l.result_type().sizes, DType::i64, [&](BodyBuilder& b, Indices i) {
    return b.binary(Opcode::equal, l.element(b, l.tensor(0), i.first(i.size() - 1)),
                    b.index(i.back()));
  }));
}
void reference_one_hot(Evaluation& e) {
  const std::int64_t classes = e.integer(1);
  for (std::size_t p = 0; p < e.result().count(); ++p) {
    const auto n = static_cast<std::size_t>(classes);
    const bool here = e.tensor(0).integer(p / n) == static_cast<std::int64_t>(p % n);
    e.result().set(p, std::int64_t{here});
  }
}

// --- Samples and rows

template <std::int64_t reduction>
std::vector<Argument> sample_nll(SampleBuilder& s) {
  return {s.tensor({s.size(5), s.constant(7)}), s.tensor(DType::i64, {s.size(5)}, 0, 6),
          s.tensor({s.constant(7)}, 0.5, 2), s.constant(reduction), s.constant(3)};
}
std::vector<Sample> samples_nll() {
  return {{"mean", sample_nll<kReduceMean>, float_dtypes(), true},
          {"sum", sample_nll<2>, float_dtypes(), true},
          {"none", sample_nll<kReduceNone>, float_dtypes(), true}};
}
std::vector<Sample> samples_cross_entropy() {
  return {{"mean",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {s.tensor({s.size(5), s.constant(7)}),
                     s.tensor(DType::i64, {s.size(5)}, 0, 6),
                     graph::None{},
                     s.constant(kReduceMean),
                     s.constant(-100),
                     0.0};
           },
           {DType::f32, DType::f64},
           true}};
}
template <std::int64_t reduction>
std::vector<Argument> sample_distance(SampleBuilder& s) {
  return {s.free_tensor({5, 7}), s.free_tensor({5, 7}), s.constant(reduction)};
}
std::vector<Sample> samples_distance() {
  return {{"mean", sample_distance<kReduceMean>, float_dtypes(), true},
          {"none", sample_distance<kReduceNone>, float_dtypes()}};
}
std::vector<Sample> samples_one_hot() {
  return {{"classes", [](SampleBuilder& s) -> std::vector<Argument> {
             return {s.tensor(DType::i64, {s.size(5)}, 0, 6), s.constant(7)};
           }}};
}

constexpr std::string_view kSchemaNll =
    "(self: tensor, target: tensor, weight: optional_tensor, reduction: integer, "
    "ignore_index: integer) -> tensor, tensor";

template <Distance kind>
constexpr OpDef distance_row(std::string_view name, std::string_view schema, std::string_view aten,
                             std::string_view doc) {
  return {.name = name,
          .schema = schema,
          .doc = doc,
          .traits = Trait::reduction,
          .infer = infer_distance,
          .lower = lower_distance<kind>,
          .reference = reference_distance<kind>,
          .aten = aten,
          .samples = samples_distance};
}

constexpr OpDef kLoss[] = {
    {.name = "cross_entropy_loss",
     .schema = "(self: tensor, target: tensor, weight: optional_tensor = none, "
               "reduction: integer = 1, ignore_index: integer = -100, "
               "label_smoothing: real = 0.0) -> tensor",
     .doc = "nll_loss of log_softmax.",
     .traits = Trait::reduction,
     .infer = infer_cross_entropy,
     .decompose = decompose_cross_entropy,
     .reference = composite::ref_cross_entropy,
     .aten = "aten::cross_entropy_loss",
     .samples = samples_cross_entropy},
    distance_row<Distance::huber>(
        "huber_loss",
        "(self: tensor, target: tensor, reduction: integer = 1, delta: real = 1.0) -> tensor",
        "aten::huber_loss", "Squared below delta, linear above."),
    distance_row<Distance::absolute>(
        "l1_loss", "(self: tensor, target: tensor, reduction: integer = 1) -> tensor",
        "aten::l1_loss", "Absolute difference."),
    distance_row<Distance::squared>(
        "mse_loss", "(self: tensor, target: tensor, reduction: integer = 1) -> tensor",
        "aten::mse_loss", "Squared difference."),
    {.name = "nll_loss_forward",
     .schema = kSchemaNll,
     .doc = "Weighted negative likelihood of target classes, and the total weight.",
     .traits = Trait::reduction,
     .infer = infer_nll,
     .lower = lower_nll,
     .reference = reference_nll,
     .aten = "aten::nll_loss_forward aten::nll_loss2d_forward",
     .samples = samples_nll},
    {.name = "nll_loss_nd",
     .schema = "(self: tensor, target: tensor, weight: optional_tensor = none, "
               "reduction: integer = 1, ignore_index: integer = -100) -> tensor",
     .doc = "Weighted negative likelihood of target classes.",
     .traits = Trait::reduction,
     .infer = infer_nll_only,
     .decompose = decompose_nll,
     .reference = composite::ref_nll,
     .aten = "aten::nll_loss_nd",
     .samples = samples_nll},
    {.name = "one_hot",
     .schema = "(self: tensor, num_classes: integer = -1) -> tensor",
     .doc = "1 where the position in the new last dimension is the element.",
     .infer = infer_one_hot,
     .lower = lower_one_hot,
     .reference = reference_one_hot,
     .aten = "aten::one_hot",
     .samples = samples_one_hot},
    distance_row<Distance::smooth>(
        "smooth_l1_loss",
        "(self: tensor, target: tensor, reduction: integer = 1, beta: real = 1.0) -> tensor",
        "aten::smooth_l1_loss", "Squared below beta, absolute above."),
};

}  // namespace

std::span<const OpDef> loss_ops() { return kLoss; }

}  // namespace inkle::ops
