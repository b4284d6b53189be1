// Gradients of layer, group, batch, root-mean-square and weight norm, of softmax and its logarithm.
// Each decomposes into sums over a row (or a channel) and arithmetic on the same data, which the
// scheduler puts in one kernel. All inside is f32 or f64; results are rounded once.
#include <cmath>

#include "base/error.h"
#include "ops/axes.h"
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

// Writes arithmetic of one decomposition.
class Writer {
 public:
  Writer(Builder& builder, const Node& node)
      : b(builder), in(builder.graph(), *node.op, node.args) {}

  [[nodiscard]] ValueId value(std::size_t arg) const { return std::get<ValueId>(in.arg(arg)); }
  [[nodiscard]] std::optional<ValueId> optional(std::size_t arg) const {
    const auto* v = std::get_if<ValueId>(&in.arg(arg));
    return v == nullptr ? std::nullopt : std::optional(*v);
  }
  // Tensor argument `arg` in the type computed in.
  [[nodiscard]] ValueId wide(std::size_t arg) {
    return to(value(arg), abi::compute_type(b.type(value(arg)).dtype));
  }
  [[nodiscard]] std::optional<ValueId> optional_wide(std::size_t arg) {
    return optional(arg) ? std::optional(wide(arg)) : std::nullopt;
  }
  ValueId to(ValueId v, DType dtype) {
    return b.type(v).dtype == dtype ? v : b.node("_to_copy", {v, dtype});
  }
  ValueId mul(ValueId x, ValueId y) { return b.node("mul", {x, y}); }
  ValueId sub(ValueId x, ValueId y) { return b.node("sub", {x, y}); }
  ValueId reshape(ValueId x, Sizes sizes) { return b.node("reshape", {x, std::move(sizes)}); }
  // The sum over `dims`, kept as size 1 or dropped; x itself where there are none.
  ValueId sum(ValueId x, const std::vector<Expr>& dims, bool keep) {
    return dims.empty() ? x : b.node("sum_dim", {x, dims, keep});
  }
  ValueId mean(ValueId x, const std::vector<Expr>& dims, bool keep) {
    return dims.empty() ? x : b.node("mean_dim", {x, dims, keep});
  }
  // Dimension numbers first, first + 1, ..., end - 1.
  std::vector<Expr> range(std::size_t first, std::size_t end) {
    std::vector<Expr> dims;
    for (std::size_t d = first; d < end; ++d)
      dims.push_back(b.integer(static_cast<std::int64_t>(d)));
    return dims;
  }

  Builder& b;
  Inference in;
};

// rstd * (g - mean(g) - xhat * mean(g * xhat)): means over `dims`, all other dimensions alone.
ValueId centred_gradient(Writer& w, ValueId g, ValueId xhat, ValueId rstd,
                         const std::vector<Expr>& dims) {
  const ValueId along = w.mean(w.mul(g, xhat), dims, true);
  const ValueId level = w.mean(g, dims, true);
  return w.mul(rstd, w.sub(w.sub(g, level), w.mul(xhat, along)));
}

// --- Layer norm: (grad, input, normalized_shape, mean, rstd, weight?, bias?, mask) -> dx, dw, db

// Gradients of a weight or bias have its dtype, or that of x.
Type parameter_type(Inference& in, std::size_t arg, const Type& x, Sizes sizes) {
  const Type* p = in.optional_tensor(arg);
  return infer::make(x, p != nullptr ? p->dtype : x.dtype, std::move(sizes));
}
Types infer_layer(Inference& in) {
  const Type& x = float_tensor(in, 1);
  (void)float_tensor(in, 0);
  const Sizes shape = in.integers(2);
  if (shape.empty() || shape.size() > x.rank()) in.fail("normalized_shape has the wrong length");
  return {infer::make(x, x.dtype, x.sizes), parameter_type(in, 5, x, shape),
          parameter_type(in, 6, x, shape)};
}
std::vector<ValueId> decompose_layer(Builder& b, const Node& node) {
  Writer w(b, node);
  const Type x = b.type(w.value(1));
  const std::size_t first = x.rank() - w.in.integers(2).size();
  const ValueId grad = w.wide(0), rstd = w.wide(4);
  const ValueId xhat = w.mul(w.sub(w.wide(1), w.wide(3)), rstd);
  const auto weight = w.optional_wide(5);
  const ValueId g = weight ? w.mul(grad, *weight) : grad;
  const ValueId dx = centred_gradient(w, g, xhat, rstd, w.range(first, x.rank()));
  const std::vector<Expr> rows = w.range(0, first);
  const Types types = infer_layer(w.in);
  return {w.to(dx, x.dtype), w.to(w.sum(w.mul(grad, xhat), rows, false), types[1].dtype),
          w.to(w.sum(grad, rows, false), types[2].dtype)};
}

// --- RMS norm: (grad, input, normalized_shape, rstd, weight?, mask) -> dx, dw

Types infer_rms(Inference& in) {
  const Type& x = float_tensor(in, 1);
  (void)float_tensor(in, 0);
  const Sizes shape = in.integers(2);
  if (shape.empty() || shape.size() > x.rank()) in.fail("normalized_shape has the wrong length");
  return {infer::make(x, x.dtype, x.sizes), parameter_type(in, 4, x, shape)};
}
std::vector<ValueId> decompose_rms(Builder& b, const Node& node) {
  Writer w(b, node);
  const Type x = b.type(w.value(1));
  const std::size_t first = x.rank() - w.in.integers(2).size();
  const ValueId grad = w.wide(0), rstd = w.wide(3);
  const ValueId xhat = w.mul(w.wide(1), rstd);
  const auto weight = w.optional_wide(4);
  const ValueId g = weight ? w.mul(grad, *weight) : grad;
  const ValueId along = w.mean(w.mul(g, xhat), w.range(first, x.rank()), true);
  const ValueId dx = w.mul(rstd, w.sub(g, w.mul(xhat, along)));
  const ValueId dw = w.sum(w.mul(grad, xhat), w.range(0, first), false);
  return {w.to(dx, x.dtype), w.to(dw, infer_rms(w.in)[1].dtype)};
}

// --- Group norm: (grad, input, mean, rstd, weight?, N, C, HxW, group, mask) -> dx, dw, db

Types infer_group(Inference& in) {
  const Type& x = float_tensor(in, 1);
  (void)float_tensor(in, 0);
  const std::int64_t groups = in.constant_integer(8);
  if (x.rank() < 2 || groups <= 0) in.fail("needs a batch, channels and groups");
  if (!in.context().guard_equal(mod(x.sizes[1], groups), in.context().constant(0))) {
    in.fail("the number of groups does not divide the channels");
  }
  const Type parameter = parameter_type(in, 4, x, {x.sizes[1]});
  return {infer::make(x, x.dtype, x.sizes), parameter, parameter};
}
std::vector<ValueId> decompose_group(Builder& b, const Node& node) {
  Writer w(b, node);
  const Type x = b.type(w.value(1));
  const Expr groups = w.in.integer(8), batch = x.sizes[0];
  const Expr depth = floordiv(x.sizes[1], groups), one = b.integer(1);
  const Expr area = sym::product(b.context(), Sizes(x.sizes.begin() + 2, x.sizes.end()));
  const Sizes grouped = {batch, groups, depth, area};
  const ValueId grad = w.reshape(w.wide(0), grouped);
  const ValueId mean = w.reshape(w.wide(2), {batch, groups, one, one});
  const ValueId rstd = w.reshape(w.wide(3), {batch, groups, one, one});
  const ValueId xhat = w.mul(w.sub(w.reshape(w.wide(1), grouped), mean), rstd);
  const auto weight = w.optional_wide(4);
  const ValueId g = weight ? w.mul(grad, w.reshape(*weight, {groups, depth, one})) : grad;
  const ValueId dx = centred_gradient(w, g, xhat, rstd, w.range(2, 4));
  const std::vector<Expr> others = {b.integer(0), b.integer(3)};
  const auto parameter = [&](ValueId v) {
    return w.to(w.reshape(w.sum(v, others, false), {x.sizes[1]}), infer_group(w.in)[1].dtype);
  };
  return {w.to(w.reshape(dx, x.sizes), x.dtype), parameter(w.mul(grad, xhat)), parameter(grad)};
}

// --- Batch norm: (grad, input, weight?, running_mean?, running_var?, save_mean?, save_invstd?,
// train, eps, mask) -> dx, dw, db

Types infer_batch(Inference& in) {
  const Type& x = float_tensor(in, 1);
  (void)float_tensor(in, 0);
  if (x.rank() < 2) in.fail("needs a batch and a channel dimension");
  const std::size_t first = in.boolean(7) ? 5 : 3;
  for (const std::size_t arg : {first, first + 1}) {
    if (in.optional_tensor(arg) == nullptr) unsupported("{}: without statistics", in.op().name);
  }
  const Type parameter = parameter_type(in, 2, x, {x.sizes[1]});
  return {infer::make(x, x.dtype, x.sizes), parameter, parameter};
}
std::vector<ValueId> decompose_batch(Builder& b, const Node& node) {
  Writer w(b, node);
  const Type x = b.type(w.value(1));
  const bool train = w.in.boolean(7);
  Sizes channels(x.rank() - 1, b.integer(1));
  channels[0] = x.sizes[1];
  const auto spread = [&](ValueId v) { return x.rank() == 2 ? v : w.reshape(v, channels); };
  const ValueId grad = w.wide(0);
  const ValueId mean = w.wide(train ? 5 : 3);
  const ValueId rstd =
      train ? w.wide(6) : b.node("rsqrt", {b.node("add", {w.wide(4), w.in.real(8)})});
  const ValueId xhat = w.mul(w.sub(w.wide(1), spread(mean)), spread(rstd));
  std::vector<Expr> others = w.range(0, x.rank());
  others.erase(others.begin() + 1);
  const auto weight = w.optional_wide(2);
  const ValueId scale = spread(weight ? w.mul(rstd, *weight) : rstd);
  const ValueId dx = train ? centred_gradient(w, grad, xhat, scale, others) : w.mul(grad, scale);
  const auto parameter = [&](ValueId v) {
    return w.to(w.sum(v, others, false), infer_batch(w.in)[1].dtype);
  };
  return {w.to(dx, x.dtype), parameter(w.mul(grad, xhat)), parameter(grad)};
}

// --- Weight norm: (grad, v, g, norms, dim) -> dv, dg

Types infer_weight(Inference& in) {
  const Type &v = float_tensor(in, 1), &g = float_tensor(in, 2);
  (void)float_tensor(in, 0);
  (void)float_tensor(in, 3);
  (void)in.dim(in.constant_integer(4), v.rank());
  return {infer::make(v, v.dtype, v.sizes), infer::make(g, g.dtype, g.sizes)};
}
std::vector<ValueId> decompose_weight(Builder& b, const Node& node) {
  Writer w(b, node);
  const Type v = b.type(w.value(1));
  std::vector<Expr> others = w.range(0, v.rank());
  others.erase(others.begin() +
               static_cast<std::ptrdiff_t>(w.in.dim(w.in.constant_integer(4), v.rank())));
  const ValueId grad = w.wide(0), unit_less = w.wide(1), norm = w.wide(3);
  const ValueId along = b.node("div", {w.sum(w.mul(grad, unit_less), others, true), norm});
  const ValueId scale = b.node("div", {w.wide(2), norm});
  const ValueId unit = b.node("div", {unit_less, norm});
  const ValueId dv = w.mul(scale, w.sub(grad, w.mul(unit, along)));
  return {w.to(dv, v.dtype), w.to(along, b.type(w.value(2)).dtype)};
}

// --- Softmax: (grad, output, dim, input_dtype) -> dx

Types infer_softmax(Inference& in) {
  const Type& y = float_tensor(in, 1);
  (void)float_tensor(in, 0);
  (void)in.dim(in.constant_integer(2), y.rank());
  return {infer::make(y, in.dtype(3).value_or(y.dtype), y.sizes)};
}
template <bool logarithm>
std::vector<ValueId> decompose_softmax(Builder& b, const Node& node) {
  Writer w(b, node);
  const ValueId grad = w.wide(0), y = w.wide(1);
  const std::size_t rank = b.type(y).rank();
  const std::size_t dim = w.in.dim(w.in.constant_integer(2), rank);
  const std::vector<Expr> dims = rank == 0 ? std::vector<Expr>{} : w.range(dim, dim + 1);
  const DType dtype = infer_softmax(w.in)[0].dtype;
  if (logarithm) {
    const ValueId total = w.sum(grad, dims, true);
    return {w.to(w.sub(grad, w.mul(b.node("exp", {y}), total)), dtype)};
  }
  const ValueId scaled = w.mul(grad, y);
  return {w.to(w.sub(scaled, w.mul(y, w.sum(scaled, dims, true))), dtype)};
}

// --- References

// Elements that share moments, and the parameter that each of them meets.
struct Norm {
  std::vector<std::vector<std::size_t>> groups;  // positions in x
  std::vector<std::size_t> parameter;            // by position in x
  std::vector<double> mean, rstd;                // by group
  const RefTensor* weight = nullptr;
  bool constant_moments = false;  // running statistics
  bool centred = true;
};
void reference_norm(Evaluation& e, const Norm& n) {
  const RefTensor &grad = e.tensor(0), &x = e.tensor(1);
  std::vector<double> dw, db;
  if (e.result_count() > 1) dw.assign(e.result(1).count(), 0);
  db = dw;
  for (std::size_t k = 0; k < n.groups.size(); ++k) {
    const auto xhat = [&](std::size_t j) { return (x.real(j) - n.mean[k]) * n.rstd[k]; };
    const auto g = [&](std::size_t j) {
      return grad.real(j) * (n.weight != nullptr ? n.weight->real(n.parameter[j]) : 1);
    };
    double level = 0, along = 0;
    for (const std::size_t j : n.groups[k]) {
      level += g(j) / static_cast<double>(n.groups[k].size());
      along += g(j) * xhat(j) / static_cast<double>(n.groups[k].size());
      dw[n.parameter[j]] += grad.real(j) * xhat(j);
      db[n.parameter[j]] += grad.real(j);
    }
    if (n.constant_moments) along = 0;
    if (n.constant_moments || !n.centred) level = 0;
    for (const std::size_t j : n.groups[k]) {
      e.result().set(j, n.rstd[k] * (g(j) - level - xhat(j) * along));
    }
  }
  for (std::size_t c = 0; c < dw.size(); ++c) {
    e.result(1).set(c, dw[c]);
    if (e.result_count() > 2) e.result(2).set(c, db[c]);
  }
}
std::vector<double> reals_of(const RefTensor& t) {
  std::vector<double> list(t.count());
  for (std::size_t i = 0; i < list.size(); ++i) list[i] = t.real(i);
  return list;
}
// Position modulo `period`, after division by `stride`.
std::vector<std::size_t> cycled(std::size_t count, std::size_t stride, std::size_t period) {
  std::vector<std::size_t> list(count);
  for (std::size_t i = 0; i < count; ++i) list[i] = i / stride % period;
  return list;
}
void reference_layer(Evaluation& e) {
  const RefTensor& x = e.tensor(1);
  const Axes axes = Axes::from(x.rank() - e.integers(2).size(), x.rank());
  reference_norm(e, {reduction_groups(x, axes),
                     cycled(x.count(), 1, std::max<std::size_t>(e.result(1).count(), 1)),
                     reals_of(e.tensor(3)), reals_of(e.tensor(4)), e.optional_tensor(5)});
}
void reference_rms(Evaluation& e) {
  const RefTensor& x = e.tensor(1);
  const Axes axes = Axes::from(x.rank() - e.integers(2).size(), x.rank());
  std::vector<double> rstd = reals_of(e.tensor(3));
  Norm norm{reduction_groups(x, axes),
            cycled(x.count(), 1, std::max<std::size_t>(e.result(1).count(), 1)),
            std::vector<double>(rstd.size(), 0), rstd, e.optional_tensor(4)};
  norm.centred = false;
  reference_norm(e, norm);
}
void reference_group(Evaluation& e) {
  const RefTensor& x = e.tensor(1);
  if (x.count() == 0) return;
  const auto count = e.tensor(2).count();
  const std::size_t size = x.count() / count;
  std::vector<std::vector<std::size_t>> groups(count);
  for (std::size_t j = 0; j < x.count(); ++j) groups[j / size].push_back(j);
  const auto channels = static_cast<std::size_t>(x.sizes[1]);
  const std::size_t area = x.count() / static_cast<std::size_t>(x.sizes[0]) / channels;
  reference_norm(e, {groups, cycled(x.count(), area, channels), reals_of(e.tensor(2)),
                     reals_of(e.tensor(3)), e.optional_tensor(4)});
}
void reference_batch(Evaluation& e) {
  const RefTensor& x = e.tensor(1);
  if (x.count() == 0) return;
  Axes axes = Axes::all(x.rank());
  axes.is_reduced[1] = false;
  const bool train = e.boolean(7);
  std::vector<double> rstd = reals_of(e.tensor(train ? 6 : 4));
  if (!train) {
    for (double& r : rstd) r = 1 / std::sqrt(r + e.real(8));
  }
  const auto channels = static_cast<std::size_t>(x.sizes[1]);
  const std::size_t area = x.count() / static_cast<std::size_t>(x.sizes[0]) / channels;
  Norm norm{reduction_groups(x, axes), cycled(x.count(), area, channels),
            reals_of(e.tensor(train ? 5 : 3)), rstd, e.optional_tensor(2)};
  norm.constant_moments = !train;
  reference_norm(e, norm);
}
void reference_weight(Evaluation& e) {
  const RefTensor &grad = e.tensor(0), &v = e.tensor(1), &g = e.tensor(2), &norm = e.tensor(3);
  Axes axes = Axes::all(v.rank());
  axes.is_reduced[e.dim(e.integer(4), v.rank())] = false;
  const auto groups = reduction_groups(v, axes);
  for (std::size_t k = 0; k < groups.size(); ++k) {
    double along = 0;
    const double n = norm.real(k);
    for (const std::size_t j : groups[k]) along += grad.real(j) * v.real(j) / n;
    for (const std::size_t j : groups[k]) {
      e.result().set(j, g.real(k) / n * (grad.real(j) - v.real(j) / n * along));
    }
    e.result(1).set(k, along);
  }
}
template <bool logarithm>
void reference_softmax(Evaluation& e) {
  const RefTensor &grad = e.tensor(0), &y = e.tensor(1);
  const Axes axes = Axes::only(e.dim(e.integer(2), y.rank()), y.rank());
  for (const auto& group : reduction_groups(y, axes)) {
    double sum = 0;
    for (const std::size_t j : group) sum += grad.real(j) * (logarithm ? 1 : y.real(j));
    for (const std::size_t j : group) {
      e.result().set(j, logarithm ? grad.real(j) - std::exp(y.real(j)) * sum
                                  : y.real(j) * (grad.real(j) - sum));
    }
  }
}

// --- Samples and rows

std::vector<bool> mask(std::size_t count) { return std::vector<bool>(count, true); }

std::vector<Sample> samples_layer() {
  return {{"affine",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {s.free_tensor({3, 5, 37}),
                     s.free_tensor({3, 5, 37}),
                     std::vector<Expr>{s.size(37)},
                     s.tensor({s.size(3), s.size(5), s.constant(1)}),
                     s.tensor({s.size(3), s.size(5), s.constant(1)}, 0.5, 2),
                     s.free_tensor({37}),
                     s.free_tensor({37}),
                     mask(3)};
           },
           {DType::f32, DType::f64}},
          {"plain", [](SampleBuilder& s) -> std::vector<Argument> {
             return {s.free_tensor({5, 7}),
                     s.free_tensor({5, 7}),
                     std::vector<Expr>{s.size(5), s.size(7)},
                     s.tensor({s.constant(1), s.constant(1)}),
                     s.tensor({s.constant(1), s.constant(1)}, 0.5, 2),
                     graph::None{},
                     graph::None{},
                     mask(3)};
           }}};
}
std::vector<Sample> samples_rms() {
  return {{"scaled",
           [](SampleBuilder& s) -> std::vector<Argument> {
             return {s.free_tensor({3, 5, 37}),
                     s.free_tensor({3, 5, 37}),
                     std::vector<Expr>{s.size(37)},
                     s.tensor({s.size(3), s.size(5), s.constant(1)}, 0.5, 2),
                     s.free_tensor({37}),
                     mask(2)};
           },
           {DType::f32, DType::f64}}};
}
std::vector<Sample> samples_group() {
  return {{"affine",
           [](SampleBuilder& s) -> std::vector<Argument> {
             const auto plane = [&] {
               return s.tensor({s.size(2), s.constant(6), s.size(5), s.size(4)});
             };
             const auto moment = [&] { return s.tensor({s.size(2), s.constant(3)}, 0.5, 2); };
             return {plane(),
                     plane(),
                     moment(),
                     moment(),
                     s.tensor({s.constant(6)}),
                     s.size(2),
                     s.constant(6),
                     s.size(5) * s.size(4),
                     s.constant(3),
                     mask(3)};
           },
           {DType::f32, DType::f64}}};
}
template <bool train>
std::vector<Argument> sample_batch(SampleBuilder& s) {
  const auto plane = [&] { return s.tensor({s.size(3), s.constant(6), s.size(5), s.size(4)}); };
  const auto channel = [&] { return s.tensor({s.constant(6)}, 0.5, 2); };
  return {plane(),   plane(),   channel(), channel(), channel(),
          channel(), channel(), train,     1e-5,      mask(3)};
}
std::vector<Sample> samples_batch() {
  return {{"training", sample_batch<true>, {DType::f32, DType::f64}},
          {"inference", sample_batch<false>, {DType::f32, DType::f64}}};
}
std::vector<Sample> samples_weight() {
  return {{"rows",
           [](SampleBuilder& s) -> std::vector<Argument> {
             const auto rows = [&](double low) {
               return s.tensor({s.size(4), s.constant(1), s.constant(1)}, low, 2);
             };
             return {s.free_tensor({4, 3, 5}), s.free_tensor({4, 3, 5}), rows(-2), rows(0.5),
                     s.constant(0)};
           },
           {DType::f32, DType::f64}}};
}
std::vector<Sample> samples_softmax() {
  return {
      {"last",
       [](SampleBuilder& s) -> std::vector<Argument> {
         return {s.free_tensor({3, 37}), s.free_tensor({3, 37}, -3, 0.5), s.constant(-1),
                 s.dtype()};
       },
       float_dtypes()},
      {"first", [](SampleBuilder& s) -> std::vector<Argument> {
         return {s.free_tensor({5, 4}), s.free_tensor({5, 4}, -3, 0.5), s.constant(0), s.dtype()};
       }}};
}

constexpr std::string_view kSchemaSoftmax =
    "(grad_output: tensor, output: tensor, dim: integer, input_dtype: dtype) -> tensor";

constexpr OpDef row(std::string_view name, std::string_view schema, std::string_view aten,
                    std::string_view doc, Types (*infer)(Inference&),
                    std::vector<ValueId> (*decompose)(Builder&, const Node&),
                    void (*reference)(Evaluation&), std::vector<Sample> (*samples)()) {
  return {.name = name,
          .schema = schema,
          .doc = doc,
          .traits = Trait::reduction,
          .infer = infer,
          .decompose = decompose,
          .reference = reference,
          .aten = aten,
          .samples = samples};
}

constexpr OpDef kNormBackward[] = {
    row("_fused_rms_norm_backward",
        "(grad_out: tensor, input: tensor, normalized_shape: integer_list, rstd: tensor, "
        "weight: optional_tensor, output_mask: boolean_list) -> tensor, tensor",
        "aten::_fused_rms_norm_backward", "Gradients of _fused_rms_norm.", infer_rms, decompose_rms,
        reference_rms, samples_rms),
    row("_log_softmax_backward_data", kSchemaSoftmax, "aten::_log_softmax_backward_data",
        "Gradient of _log_softmax.", infer_softmax, decompose_softmax<true>,
        reference_softmax<true>, samples_softmax),
    row("_softmax_backward_data", kSchemaSoftmax, "aten::_softmax_backward_data",
        "Gradient of _softmax.", infer_softmax, decompose_softmax<false>, reference_softmax<false>,
        samples_softmax),
    row("_weight_norm_interface_backward",
        "(grad_w: tensor, saved_v: tensor, saved_g: tensor, saved_norms: tensor, dim: integer) "
        "-> tensor, tensor",
        "aten::_weight_norm_interface_backward", "Gradients of _weight_norm_interface.",
        infer_weight, decompose_weight, reference_weight, samples_weight),
    row("native_batch_norm_backward",
        "(grad_out: tensor, input: tensor, weight: optional_tensor, running_mean: optional_tensor, "
        "running_var: optional_tensor, save_mean: optional_tensor, save_invstd: optional_tensor, "
        "train: boolean, eps: real, output_mask: boolean_list) -> tensor, tensor, tensor",
        "aten::native_batch_norm_backward", "Gradients of batch norm.", infer_batch,
        decompose_batch, reference_batch, samples_batch),
    row("native_group_norm_backward",
        "(grad_out: tensor, input: tensor, mean: tensor, rstd: tensor, weight: optional_tensor, "
        "N: integer, C: integer, HxW: integer, group: integer, output_mask: boolean_list) "
        "-> tensor, tensor, tensor",
        "aten::native_group_norm_backward", "Gradients of group norm.", infer_group,
        decompose_group, reference_group, samples_group),
    row("native_layer_norm_backward",
        "(grad_out: tensor, input: tensor, normalized_shape: integer_list, mean: tensor, "
        "rstd: tensor, weight: optional_tensor, bias: optional_tensor, "
        "output_mask: boolean_list) -> tensor, tensor, tensor",
        "aten::native_layer_norm_backward", "Gradients of layer norm.", infer_layer,
        decompose_layer, reference_layer, samples_layer),
};

}  // namespace

std::span<const OpDef> norm_backward_ops() { return kNormBackward; }

}  // namespace inkle::ops
