// Batch norm, decomposed into moments (in training) and arithmetic per channel. With running
// statistics y = x * scale[c] + shift[c], scale = weight / sqrt(var + eps), as ATen computes it:
// scale and shift are values of their own that depend on parameters alone, so that they can be
// folded or computed once.
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

// Where a row keeps its arguments; input, weight and bias are 0, 1 and 2. -1: it has none.
struct Positions {
  int mean = 3, var = 4;  // running statistics
  int training = -1;      // never in training without it
  int momentum = 5, eps = 6;
  bool functional = false;  // returns the new running statistics
  bool only_y = false;      // returns no statistics
};
constexpr Positions kInference{};
constexpr Positions kFunctional{.training = 5, .momentum = 6, .eps = 7, .functional = true};
constexpr Positions kNoStats{.mean = -1, .var = -1, .training = 3, .momentum = 4, .eps = 5};
constexpr Positions kNative{.training = 5, .momentum = 6, .eps = 7};
constexpr Positions kComposite{.training = 5, .momentum = 6, .eps = 7, .only_y = true};

constexpr std::size_t at(int position) { return static_cast<std::size_t>(position); }

bool is_training(const Inference& in, const Positions& p) {
  return p.training >= 0 && in.boolean(at(p.training));
}

// The dtype of the moments that the backward wants: rounded on the CPU alone.
DType saved_dtype(const Type& x) {
  return x.device.kind == abi::DeviceKind::cpu ? x.dtype : abi::compute_type(x.dtype);
}

// The dtype of arithmetic on a channel's moments: f64 for f32 on the CPU, as in ATen.
DType exact_dtype(const Type& x) { return accumulator_of(x, {DType::f32}); }

// The dtype in which moments are accumulated. With few elements (as far as is known) roundings do
// not average out, so it is f64; with many, partial sums in f32 as short as a core makes them,
// which are combined in f64 (docs/codegen_cpu.md), are as exact as the mean that is rounded to f32,
// in two thirds of the time.
constexpr std::int64_t kFewElements = 1024;
DType moments_dtype(Builder& b, const Type& x) {
  Sizes counted = x.sizes;
  counted.erase(counted.begin() + 1);
  const auto count = sym::hint(sym::product(b.context(), counted));
  return count && *count <= kFewElements ? exact_dtype(x) : abi::compute_type(x.dtype);
}

template <Positions p>
Types infer_batch_norm(Inference& in) {
  const Type& x = float_tensor(in, 0);
  if (x.rank() < 2) in.fail("needs a batch and a channel dimension");
  const Expr channels = x.sizes[1];
  const bool training = is_training(in, p);
  const auto check = [&](int arg) {
    const Type* t = arg < 0 ? nullptr : in.optional_tensor(at(arg));
    if (t == nullptr) return;
    if (t->rank() != 1 || !abi::is_float(t->dtype) ||
        !in.context().guard_equal(t->sizes[0], channels)) {
      in.fail("a weight, bias or running statistic does not fit the channels");
    }
  };
  for (const int arg : {1, 2, p.mean, p.var}) check(arg);
  const bool has_stats = p.mean >= 0 && in.optional_tensor(at(p.mean)) != nullptr;
  if (!training && !has_stats) in.fail("needs running statistics");
  if (training && has_stats && !p.functional) {
    unsupported("{}: updates running statistics in place", in.op().name);
  }
  Types types = {infer::make(x, x.dtype, x.sizes)};
  if (p.only_y) return types;
  const Type saved = training ? infer::make(x, saved_dtype(x), {channels})
                              : infer::make(x, x.dtype, {in.context().constant(0)});
  types.push_back(saved);
  types.push_back(saved);
  if (p.functional) {
    // As ATen's own shape rule has it: not rounded before they are written back.
    for (const int arg : {p.mean, p.var}) {
      types.push_back(infer::make(x, abi::compute_type(in.tensor(at(arg)).dtype), {channels}));
    }
  }
  return types;
}

ValueId to(Builder& b, ValueId v, DType dtype) {
  return b.type(v).dtype == dtype ? v : b.node("_to_copy", {v, dtype});
}
// A vector over channels as one that broadcasts over x.
ValueId per_channel(Builder& b, ValueId vector, const Type& x) {
  Sizes sizes(x.rank() - 1, b.integer(1));
  sizes[0] = x.sizes[1];
  return x.rank() == 2 ? vector : b.node("reshape", {vector, sizes});
}
// (1 - momentum) * old + momentum * now.
ValueId running(Builder& b, ValueId old, ValueId now, double momentum, DType compute) {
  const ValueId kept = b.node("mul", {to(b, old, compute), 1 - momentum});
  const ValueId added = b.node("mul", {now, momentum});
  const ValueId sum = b.node("add", {kept, added});
  return to(b, sum, abi::compute_type(b.type(old).dtype));
}

template <Positions p>
std::vector<ValueId> decompose_batch_norm(Builder& b, const Node& node) {
  const Inference in(b.graph(), *node.op, node.args);
  const ValueId x = std::get<ValueId>(node.args[0]);
  const Type type = b.type(x);
  const DType dtype = type.dtype, compute = abi::compute_type(dtype);
  const bool training = is_training(in, p);
  const ValueId wide = to(b, x, compute);
  const auto stat = [&](int arg) { return std::get<ValueId>(node.args[at(arg)]); };
  std::vector<Expr> axes;
  for (std::size_t d = 0; d < type.rank(); ++d) {
    if (d != 1) axes.push_back(b.integer(static_cast<std::int64_t>(d)));
  }
  const DType exact = training ? exact_dtype(type) : compute;
  const DType added = training ? moments_dtype(b, type) : compute;
  const ValueId counted = added == compute ? wide : to(b, x, added);
  ValueId exact_mean, var;
  if (training) {
    const std::vector<ValueId> moments = b.nodes("moments", {counted, axes, 0.0, false});
    var = to(b, moments[0], exact);
    exact_mean = to(b, moments[1], exact);
  } else {
    exact_mean = to(b, stat(p.mean), compute);
    var = to(b, stat(p.var), compute);
  }
  const ValueId mean = to(b, exact_mean, compute);
  const ValueId rstd = to(b, b.node("rsqrt", {b.node("add", {var, in.real(at(p.eps))})}), compute);
  const auto parameter = [&](std::size_t arg) -> std::optional<ValueId> {
    const auto* v = std::get_if<ValueId>(&node.args[arg]);
    return v == nullptr ? std::nullopt : std::optional(to(b, *v, compute));
  };
  const auto weight = parameter(1), bias = parameter(2);
  const ValueId scale = weight ? b.node("mul", {rstd, *weight}) : rstd;
  ValueId y;
  if (training) {
    // Not x * scale + shift: where the mean is large, the two cancel and few digits are left.
    const ValueId centred = b.node("sub", {wide, per_channel(b, mean, type)});
    y = b.node("mul", {centred, per_channel(b, scale, type)});
    if (bias) y = b.node("add", {y, per_channel(b, *bias, type)});
  } else {
    const ValueId offset = b.node("mul", {mean, scale});
    const ValueId shift = bias ? b.node("sub", {*bias, offset}) : b.node("neg", {offset});
    const ValueId scaled = b.node("mul", {wide, per_channel(b, scale, type)});
    y = b.node("add", {scaled, per_channel(b, shift, type)});
  }
  y = to(b, y, dtype);
  if (p.only_y) return {y};
  if (!training) {
    const ValueId empty = b.full({b.integer(0)}, 0, dtype, type.device);
    std::vector<ValueId> results = {y, empty, empty};
    if (p.functional) {
      for (const ValueId v : {stat(p.mean), stat(p.var)}) {
        results.push_back(to(b, v, abi::compute_type(b.type(v).dtype)));
      }
    }
    return results;
  }
  const DType saved = saved_dtype(type);
  std::vector<ValueId> results = {y, to(b, mean, saved), to(b, rstd, saved)};
  if (p.functional) {
    const double momentum = in.real(at(p.momentum));
    const ValueId unbiased = to(b, b.nodes("moments", {counted, axes, 1.0, false})[0], exact);
    results.push_back(running(b, stat(p.mean), exact_mean, momentum, exact));
    results.push_back(running(b, stat(p.var), unbiased, momentum, exact));
  }
  return results;
}

// Mean, biased variance and number of elements of a channel.
struct Moments {
  double mean = 0, var = 0, count = 0;
};
Moments moments_of(const RefTensor& x, std::size_t channel) {
  const auto channels = static_cast<std::size_t>(x.sizes[1]);
  std::size_t points = 1;
  for (std::size_t d = 2; d < x.rank(); ++d) points *= static_cast<std::size_t>(x.sizes[d]);
  Moments m;
  for (std::size_t p = 0; p < x.count(); ++p) {
    if (p / points % channels != channel) continue;
    m.mean += x.real(p);
    ++m.count;
  }
  m.mean /= m.count;
  for (std::size_t p = 0; p < x.count(); ++p) {
    if (p / points % channels == channel) m.var += std::pow(x.real(p) - m.mean, 2) / m.count;
  }
  return m;
}

template <Positions p>
void reference_batch_norm(Evaluation& e) {
  const RefTensor& x = e.tensor(0);
  const RefTensor *weight = e.optional_tensor(1), *bias = e.optional_tensor(2);
  const bool training = p.training >= 0 && e.boolean(at(p.training));
  const double eps = e.real(at(p.eps)), momentum = e.real(at(p.momentum));
  for (std::size_t c = 0; c < static_cast<std::size_t>(x.sizes[1]); ++c) {
    const Moments now = training
                            ? moments_of(x, c)
                            : Moments{e.tensor(at(p.mean)).real(c), e.tensor(at(p.var)).real(c)};
    const double rstd = 1 / std::sqrt(now.var + eps);
    for_each_index(x.sizes, [&](std::span<const std::int64_t> i, std::size_t q) {
      if (static_cast<std::size_t>(i[1]) != c) return;
      const double scale = rstd * (weight == nullptr ? 1 : weight->real(c));
      e.result().set(q, (x.real(q) - now.mean) * scale + (bias == nullptr ? 0 : bias->real(c)));
    });
    if (training && !p.only_y) {
      e.result(1).set(c, now.mean);
      e.result(2).set(c, rstd);
    }
    if (!p.functional) continue;
    const double old_mean = e.tensor(at(p.mean)).real(c), old_var = e.tensor(at(p.var)).real(c);
    const double unbiased = now.var * now.count / (now.count - 1);
    e.result(3).set(c, training ? (1 - momentum) * old_mean + momentum * now.mean : old_mean);
    e.result(4).set(c, training ? (1 - momentum) * old_var + momentum * unbiased : old_var);
  }
}

// Each channel of each sample alone: groups of one channel.
Types infer_instance_norm(Inference& in) {
  const Type& x = float_tensor(in, 0);
  if (x.rank() < 3) in.fail("needs spatial dimensions");
  if (!in.boolean(5) || !in.is_none(3) || !in.is_none(4)) {
    unsupported("instance_norm: with running statistics");
  }
  if (!x.sizes[1].is_constant()) unsupported("instance_norm: symbolic channels");
  return {infer::make(x, x.dtype, x.sizes)};
}
// Group norm refuses groups without elements, as eager does; eager takes them here.
std::vector<ValueId> decompose_instance_norm(Builder& b, const Node& node) {
  const ValueId x = std::get<ValueId>(node.args[0]);
  const Type type = b.type(x);
  const Expr places = sym::product(b.context(), Sizes(type.sizes.begin() + 1, type.sizes.end()));
  if (sym::bounds(places).high == 0) return {b.full(type.sizes, 0, type.dtype, type.device)};
  return {b.node("group_norm", {x, type.sizes[1], node.args[1], node.args[2], node.args[7]})};
}

Argument channel(SampleBuilder& s, double low = -2, double high = 2) {
  return s.tensor({s.constant(6)}, low, high);
}
Argument batch(SampleBuilder& s) {
  return s.tensor({s.size(3), s.constant(6), s.size(5), s.size(4)});
}
std::vector<Sample> samples_inference() {
  return {{"affine",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {batch(s), channel(s), channel(s), channel(s), channel(s, 0.5, 2), 0.1, 1e-5};
           },
           float_dtypes()}};
}
template <bool training>
std::vector<Argument> sample_training(SampleBuilder& s) {
  return {batch(s), channel(s), channel(s), channel(s), channel(s, 0.5, 2), training, 0.1, 1e-5};
}
std::vector<Sample> samples_functional() {
  return {{"training", sample_training<true>, float_dtypes(), true},
          {"inference", sample_training<false>, float_dtypes()}};
}
std::vector<Sample> samples_native() {
  return {{"inference", sample_training<false>, float_dtypes()}};
}
std::vector<Sample> samples_composite() {
  return {{"inference",
           [](SampleBuilder& s) -> std::vector<Argument> {
             std::vector<Argument> arguments = sample_training<false>(s);
             arguments.emplace_back(true);
             return arguments;
           },
           float_dtypes()}};
}
std::vector<Sample> samples_no_stats() {
  return {{"plain",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {batch(s), graph::None{}, graph::None{}, true, 0.1, 1e-5};
           },
           float_dtypes(), true}};
}
std::vector<Sample> samples_instance() {
  return {{"affine",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {batch(s), channel(s), channel(s), graph::None{}, graph::None{},
                     true,     0.1,        1e-5,       true};
           },
           float_dtypes()}};
}

constexpr OpDef kBatchNorm[] = {
    {.name = "_native_batch_norm_legit_functional",
     .schema = "(input: tensor, weight: optional_tensor, bias: optional_tensor, "
               "running_mean: tensor, running_var: tensor, training: boolean, momentum: real, "
               "eps: real) -> tensor, tensor, tensor, tensor, tensor",
     .doc = "Batch norm; also the moments and the new running statistics.",
     .traits = Trait::reduction,
     .infer = infer_batch_norm<kFunctional>,
     .decompose = decompose_batch_norm<kFunctional>,
     .reference = reference_batch_norm<kFunctional>,
     .aten = "aten::_native_batch_norm_legit_functional",
     .samples = samples_functional},
    {.name = "_native_batch_norm_legit_no_stats",
     .schema = "(input: tensor, weight: optional_tensor, bias: optional_tensor, "
               "training: boolean, momentum: real, eps: real) -> tensor, tensor, tensor",
     .doc = "Batch norm by the batch's own moments.",
     .traits = Trait::reduction,
     .infer = infer_batch_norm<kNoStats>,
     .decompose = decompose_batch_norm<kNoStats>,
     .reference = reference_batch_norm<kNoStats>,
     .aten = "aten::_native_batch_norm_legit.no_stats",
     .samples = samples_no_stats},
    {.name = "_native_batch_norm_legit_no_training",
     .schema = "(input: tensor, weight: optional_tensor, bias: optional_tensor, "
               "running_mean: tensor, running_var: tensor, momentum: real, eps: real) "
               "-> tensor, tensor, tensor",
     .doc = "Batch norm by running statistics.",
     .traits = Trait::pointwise,
     .infer = infer_batch_norm<kInference>,
     .decompose = decompose_batch_norm<kInference>,
     .reference = reference_batch_norm<kInference>,
     .aten = "aten::_native_batch_norm_legit_no_training",
     .samples = samples_inference},
    {.name = "batch_norm",
     .schema = "(input: tensor, weight: optional_tensor, bias: optional_tensor, "
               "running_mean: optional_tensor, running_var: optional_tensor, training: boolean, "
               "momentum: real, eps: real, cudnn_enabled: boolean) -> tensor",
     .doc = "Batch norm by running statistics, or by the batch's moments where there are none.",
     .traits = Trait::reduction,
     .infer = infer_batch_norm<kComposite>,
     .decompose = decompose_batch_norm<kComposite>,
     .reference = reference_batch_norm<kComposite>,
     .aten = "aten::batch_norm",
     .samples = samples_composite},
    {.name = "instance_norm",
     .schema = "(input: tensor, weight: optional_tensor, bias: optional_tensor, "
               "running_mean: optional_tensor, running_var: optional_tensor, "
               "use_input_stats: boolean, momentum: real, eps: real, cudnn_enabled: boolean) "
               "-> tensor",
     .doc = "Normalises each channel of each sample.",
     .traits = Trait::reduction,
     .infer = infer_instance_norm,
     .decompose = decompose_instance_norm,
     .reference = composite::ref_instance_norm,
     .aten = "aten::instance_norm",
     .samples = samples_instance},
    {.name = "native_batch_norm",
     .schema = "(input: tensor, weight: optional_tensor, bias: optional_tensor, "
               "running_mean: optional_tensor, running_var: optional_tensor, training: boolean, "
               "momentum: real, eps: real) -> tensor, tensor, tensor",
     .doc = "Batch norm by running statistics, or by the batch's moments where there are none.",
     .traits = Trait::reduction,
     .infer = infer_batch_norm<kNative>,
     .decompose = decompose_batch_norm<kNative>,
     .reference = reference_batch_norm<kNative>,
     .aten = "aten::native_batch_norm",
     .samples = samples_native},
};

}  // namespace

std::span<const OpDef> batch_norm_ops() { return kBatchNorm; }

}  // namespace inkle::ops
