// Gradients of losses. That of the likelihood is 0 but at the wanted class, written as a pointwise
// value, so that it fuses with the gradient of log_softmax and is never stored.
#include <cmath>

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
using graph::Trait;
using infer::Types;

// --- nll_loss_backward: (grad, self, target, weight?, reduction, ignore_index, total_weight)

std::size_t class_dim(std::size_t rank) { return rank == 1 ? 0 : 1; }

Types infer_nll(Inference& in) {
  (void)float_tensor(in, 0);
  const Type &x = float_tensor(in, 1), &target = infer::computable(in, 2);
  if (x.rank() == 0 || target.rank() + 1 != x.rank()) in.fail("target lacks one dimension of self");
  if (target.dtype != DType::i64 && target.dtype != DType::u8) in.fail("target must be i64 or u8");
  const Type* weight = in.optional_tensor(3);
  if (weight != nullptr && weight->rank() != 1) in.fail("the weight does not fit");
  (void)in.constant_integer(4);
  (void)float_tensor(in, 6);
  return {infer::make(x, x.dtype, x.sizes)};
}
void lower_nll(Lowering& l) {
  const Tensor &g = l.tensor(0), &x = l.tensor(1), &target = l.tensor(2);
  const Tensor* weight = l.optional_tensor(3);
  const std::int64_t reduction = l.args().constant_integer(4);
  const DType compute = abi::compute_type(x.dtype);
  const std::size_t dim = class_dim(x.rank());
  l.result(l.pointwise(x.sizes, x.dtype, [&](BodyBuilder& b, Indices i) {
    std::vector<Expr> sample(i.begin(), i.end());
    sample.erase(sample.begin() + static_cast<std::ptrdiff_t>(dim));
    const Val wanted = element_as(l, b, target, sample, DType::i64);
    const Val ignored = b.binary(Opcode::equal, wanted, b.index(l.args().integer(5)));
    const Val here = b.binary(Opcode::equal, wanted, b.index(i[dim]));
    Val value = b.neg(reduction == kReduceNone ? element_as(l, b, g, sample, compute)
                                               : element_as(l, b, g, {}, compute));
    if (weight != nullptr) {
      value = b.mul(value, element_as(l, b, *weight, i.subspan(dim, 1), compute));
    }
    if (reduction == kReduceMean) value = b.div(value, element_as(l, b, l.tensor(6), {}, compute));
    const Val zero = b.constant(compute, 0.0);
    return b.select(here, b.select(ignored, zero, value), zero);
  }));
}
void reference_nll(Evaluation& e) {
  const RefTensor &g = e.tensor(0), &x = e.tensor(1), &target = e.tensor(2);
  const RefTensor* weight = e.optional_tensor(3);
  const std::size_t dim = class_dim(x.rank());
  for_each_index(target.sizes, [&](std::span<const std::int64_t> i, std::size_t p) {
    const std::int64_t wanted = target.integer(p);
    if (wanted == e.integer(5)) return;
    std::vector<std::int64_t> at(i.begin(), i.end());
    at.insert(at.begin() + static_cast<std::ptrdiff_t>(dim), wanted);
    double value = -g.real(e.integer(4) == kReduceNone ? p : 0);
    if (weight != nullptr) value *= weight->real(static_cast<std::size_t>(wanted));
    if (e.integer(4) == kReduceMean) value /= e.tensor(6).real(0);
    e.result().set(e.result().at(at), value);
  });
}

// --- Means of elementwise distances: (grad, self, target, reduction, parameter?)

enum class Distance { squared, smooth, huber };

Types infer_distance(Inference& in) {
  const Type &g = float_tensor(in, 0), &x = float_tensor(in, 1), &y = float_tensor(in, 2);
  if (x.dtype != y.dtype || g.dtype != x.dtype) {
    unsupported("{}: operands of two dtypes", in.op().name);
  }
  const Sizes sizes = infer::broadcast(in, x.sizes, y.sizes);
  (void)in.constant_integer(3);
  return {infer::make(x, x.dtype, sizes)};
}
template <Distance kind>
void lower_distance(Lowering& l) {
  const Tensor &g = l.tensor(0), &x = l.tensor(1), &y = l.tensor(2);
  const DType compute = abi::compute_type(x.dtype);
  const bool is_mean = l.args().constant_integer(3) == kReduceMean;
  const double parameter = kind == Distance::squared ? 0 : l.args().real(4);
  const Sizes& sizes = l.result_type().sizes;
  l.result(l.pointwise(sizes, x.dtype, [&](BodyBuilder& b, Indices i) {
    const auto wide = [&](const Tensor& t) {
      return b.cast(l.broadcast_element(b, t, i), compute);
    };
    const auto number = [&](double v) { return b.constant(compute, v); };
    const Val d = b.sub(wide(x), wide(y));
    Val scale = wide(g);
    if (is_mean) scale = b.div(scale, count_value(b, sizes, compute));
    if (kind == Distance::squared) return b.mul(b.mul(number(2), d), scale);
    const Val step = number(kind == Distance::huber ? parameter : 1.0);
    const Val inner = kind == Distance::huber || parameter == 0 ? d : b.div(d, number(parameter));
    const Val low = b.binary(Opcode::less_equal, d, number(-parameter));
    const Val high = b.binary(Opcode::greater_equal, d, number(parameter));
    Val slope = b.select(low, b.neg(step), b.select(high, step, inner));
    // Without a parameter the slope is the sign.
    if (parameter == 0) {
      const Val zero = number(0);
      slope = b.select(b.binary(Opcode::equal, d, zero), zero, slope);
    }
    return b.mul(slope, scale);
  }));
}
template <Distance kind>
void reference_distance(Evaluation& e) {
  const RefTensor &g = e.tensor(0), &x = e.tensor(1), &y = e.tensor(2);
  RefTensor& r = e.result();
  const double parameter = kind == Distance::squared ? 0 : e.real(4);
  const double count = e.integer(3) == kReduceMean ? static_cast<double>(r.count()) : 1;
  for_each_index(r.sizes, [&](std::span<const std::int64_t> i, std::size_t p) {
    const double d = x.real(broadcast_position(x, i)) - y.real(broadcast_position(y, i));
    const double far = kind == Distance::huber ? parameter : 1;
    double slope = 2 * d;
    if (kind != Distance::squared) {
      const double near = kind == Distance::huber || parameter == 0 ? d : d / parameter;
      slope = std::abs(d) < parameter ? near : d == 0 ? 0 : std::copysign(far, d);
    }
    r.set(p, slope * g.real(broadcast_position(g, i)) / count);
  });
}

template <std::int64_t reduction, bool weighted>
std::vector<Argument> sample_nll(SampleBuilder& s) {
  std::vector<Argument> arguments;
  arguments.push_back(s.tensor(reduction == kReduceNone ? Sizes{s.size(5)} : Sizes{}));
  arguments.push_back(s.tensor({s.size(5), s.constant(7)}));
  arguments.push_back(s.tensor(DType::i64, {s.size(5)}, 0, 6));
  arguments.emplace_back(graph::None{});
  if (weighted) arguments.back() = s.tensor({s.constant(7)}, 0.5, 2);
  arguments.emplace_back(s.constant(reduction));
  arguments.emplace_back(s.constant(2));
  arguments.push_back(s.tensor(Sizes{}, 1, 4));
  return arguments;
}
std::vector<Sample> samples_nll() {
  return {{"mean", sample_nll<1, false>, float_dtypes()},
          {"weighted sum", sample_nll<2, true>},
          {"each", sample_nll<0, true>}};
}
template <Distance kind>
std::vector<Sample> samples_distance() {
  return {{"mean",
           [](SampleBuilder& s) {
             std::vector<Argument> arguments = {s.tensor({}), s.free_tensor({3, 5}),
                                                s.free_tensor({3, 5}), s.constant(1)};
             if (kind != Distance::squared) arguments.emplace_back(0.7);
             return arguments;
           },
           float_dtypes()}};
}

constexpr std::string_view kSchemaNll =
    "(grad_output: tensor, self: tensor, target: tensor, weight: optional_tensor, "
    "reduction: integer, ignore_index: integer, total_weight: tensor) -> tensor";

constexpr OpDef kLossBackward[] = {
    {.name = "huber_loss_backward",
     .schema = "(grad_output: tensor, self: tensor, target: tensor, reduction: integer, "
               "delta: real) -> tensor",
     .doc = "Gradient of huber_loss.",
     .traits = Trait::pointwise,
     .infer = infer_distance,
     .lower = lower_distance<Distance::huber>,
     .reference = reference_distance<Distance::huber>,
     .aten = "aten::huber_loss_backward",
     .samples = samples_distance<Distance::huber>},
    {.name = "mse_loss_backward",
     .schema = "(grad_output: tensor, self: tensor, target: tensor, reduction: integer) -> tensor",
     .doc = "Gradient of mse_loss.",
     .traits = Trait::pointwise,
     .infer = infer_distance,
     .lower = lower_distance<Distance::squared>,
     .reference = reference_distance<Distance::squared>,
     .aten = "aten::mse_loss_backward",
     .samples = samples_distance<Distance::squared>},
    {.name = "nll_loss_backward",
     .schema = kSchemaNll,
     .doc = "Gradient of nll_loss_forward.",
     .traits = Trait::pointwise,
     .infer = infer_nll,
     .lower = lower_nll,
     .reference = reference_nll,
     .aten = "aten::nll_loss_backward aten::nll_loss2d_backward",
     .samples = samples_nll},
    {.name = "smooth_l1_loss_backward",
     .schema = "(grad_output: tensor, self: tensor, target: tensor, reduction: integer, "
               "beta: real) -> tensor",
     .doc = "Gradient of smooth_l1_loss.",
     .traits = Trait::pointwise,
     .infer = infer_distance,
     .lower = lower_distance<Distance::smooth>,
     .reference = reference_distance<Distance::smooth>,
     .aten = "aten::smooth_l1_loss_backward",
     .samples = samples_distance<Distance::smooth>},
};

}  // namespace

std::span<const OpDef> loss_backward_ops() { return kLossBackward; }

}  // namespace inkle::ops
