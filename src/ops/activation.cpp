// Activation functions. Formulas are eager's, in its order of operations.
#include <limits>
#include <numbers>

#include "base/error.h"
#include "ops/elementwise.h"
#include "ops/table.h"

namespace inkle::ops {
namespace {

using graph::Argument;
using graph::Inference;
using infer::Types;
using Args = std::vector<Argument>;

Val number(BodyBuilder& b, Val like, double value) { return constant_like(b, like, value); }
bool compare_less(double a, double b) { return a < b; }

// --- The smooth ones
// --------------------------------------------------------------------------------

Val sigmoid_value(BodyBuilder& b, Val x) {
  const Val one = number(b, x, 1);
  return b.div(one, b.add(one, b.unary(Opcode::exp, b.neg(x))));
}
double sigmoid_reference(double x) { return 1 / (1 + std::exp(-x)); }

Val silu_value(BodyBuilder& b, Val x) {
  return b.div(x, b.add(number(b, x, 1), b.unary(Opcode::exp, b.neg(x))));
}

Val gelu_value(Lowering& l, BodyBuilder& b, Val x) {
  const Val half = number(b, x, 0.5), one = number(b, x, 1);
  if (l.args().string(1) == "none") {
    const Val e = b.unary(Opcode::erf, b.mul(x, number(b, x, std::numbers::sqrt2 / 2)));
    return b.mul(b.mul(x, half), b.add(one, e));
  }
  const Val cube = b.mul(b.mul(x, x), x);
  const double beta = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
  const Val inner = b.mul(number(b, x, beta), b.add(x, b.mul(number(b, x, 0.044715), cube)));
  return b.mul(b.mul(half, x), b.add(one, b.unary(Opcode::tanh, inner)));
}

double gelu_reference(Evaluation& e, double x) {
  if (e.string(1) == "none") return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2));
  const double inner = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
  return 0.5 * x * (1 + std::tanh(inner));
}

// Of integers eager refuses the functions that take an exponential.
Types of_floats(Inference& args) {
  if (!abi::is_float(args.tensor(0).dtype)) unsupported("an exponential of integers");
  return infer::same(args);
}

Types infer_gelu(Inference& args) {
  const std::string_view approximate = args.string(1);
  if (approximate != "none" && approximate != "tanh") {
    args.fail(fmt::format("approximate \"{}\" is none of none, tanh", approximate));
  }
  return of_floats(args);
}

// min(x, 0) - log1p(exp(-|x|)).
Val log_sigmoid_value(BodyBuilder& b, Val x) {
  const Val z = b.unary(Opcode::exp, b.neg(b.unary(Opcode::abs, x)));
  return b.sub(b.min(x, number(b, x, 0)), b.unary(Opcode::log1p, z));
}
double log_sigmoid_reference(double x) {
  return std::isnan(x) ? x : std::min(x, 0.0) - std::log1p(std::exp(-std::abs(x)));
}

Val mish_value(BodyBuilder& b, Val x) {
  return b.mul(x, b.unary(Opcode::tanh, b.unary(Opcode::log1p, b.unary(Opcode::exp, x))));
}

// x where x * beta is above the threshold, else log1p(exp(x * beta)) / beta.
Val softplus_value(Lowering& l, BodyBuilder& b, Val x) {
  const Val beta = number(b, x, l.args().real(1));
  const Val scaled = b.mul(x, beta);
  const Val soft = b.div(b.unary(Opcode::log1p, b.unary(Opcode::exp, scaled)), beta);
  return b.select(b.binary(Opcode::greater, scaled, number(b, x, l.args().real(2))), x, soft);
}
double softplus_reference(Evaluation& e, double x) {
  const double beta = e.real(1);
  return compare_less(e.real(2), x * beta) ? x : std::log1p(std::exp(x * beta)) / beta;
}

// scale * x above 0, else scale * alpha * expm1(input_scale * x).
Val elu_value(BodyBuilder& b, Val x, double alpha, double scale, double input_scale) {
  const Val negative = b.mul(b.unary(Opcode::expm1, b.mul(x, number(b, x, input_scale))),
                             number(b, x, alpha * scale));
  const Val positive = b.mul(x, number(b, x, scale));
  return b.select(b.binary(Opcode::less_equal, x, number(b, x, 0)), negative, positive);
}
double elu_reference(double x, double alpha, double scale, double input_scale) {
  return x <= 0 ? std::expm1(x * input_scale) * alpha * scale : x * scale;
}
constexpr double kSeluAlpha = 1.6732632423543772848170429916717;
constexpr double kSeluScale = 1.0507009873554804934193349852946;

// --- The piecewise linear ones
// ----------------------------------------------------------------------

// min(max(x, low), high); a NaN stays.
Val clamp_value(BodyBuilder& b, Val x, double low, double high) {
  return b.min(b.max(x, number(b, x, low)), number(b, x, high));
}
double clamp_reference(double x, double low, double high) {
  return std::isnan(x) ? x : std::min(std::max(x, low), high);
}

Val relu_value(BodyBuilder& b, Val x) {
  return b.dtype(x) == DType::boolean ? x : b.max(x, number(b, x, 0));
}

Types infer_relu(Inference& args) {
  Types types = infer::same(args);
  if (types[0].dtype == DType::boolean) args.fail("is not defined on bool");
  return types;
}

// x * clamp(x + 3, 0, 6) / 6
Val hardswish_value(BodyBuilder& b, Val x) {
  const Val gate = clamp_value(b, b.add(x, number(b, x, 3)), 0, 6);
  return b.div(b.mul(x, gate), number(b, x, 6));
}
Val hardsigmoid_value(BodyBuilder& b, Val x) {
  return b.div(clamp_value(b, b.add(x, number(b, x, 3)), 0, 6), number(b, x, 6));
}

Val leaky_relu_value(Lowering& l, BodyBuilder& b, Val x) {
  const Val scaled = b.mul(x, number(b, x, l.args().real(1)));
  return b.select(b.binary(Opcode::greater, x, number(b, x, 0)), x, scaled);
}
Val threshold_value(Lowering& l, BodyBuilder& b, Val x) {
  return b.select(b.binary(Opcode::less_equal, x, constant_argument(l, b, x, 1)),
                  constant_argument(l, b, x, 2), x);
}
void ref_threshold(Evaluation& e) {
  if (e.result().is_real()) {
    return ref_unary_with<[](Evaluation& f, double x) { return x <= f.real(1) ? f.real(2) : x; }>(
        e);
  }
  const RefTensor x = e.operand(0);
  for (std::size_t p = 0; p < e.result().count(); ++p) {
    e.result().set(p, x.integer(p) <= e.whole(1) ? e.whole(2) : x.integer(p));
  }
}
// 0 inside [-lambda, lambda]; a NaN stays.
Val hardshrink_value(Lowering& l, BodyBuilder& b, Val x) {
  const double lambda = l.args().real(1);
  const Val inside = b.logical_and(b.binary(Opcode::greater_equal, x, number(b, x, -lambda)),
                                   b.binary(Opcode::less_equal, x, number(b, x, lambda)));
  return b.select(inside, number(b, x, 0), x);
}
// x - lambda above, x + lambda below, x * 0 between.
Val softshrink_value(Lowering& l, BodyBuilder& b, Val x) {
  const Val lambda = number(b, x, l.args().real(1));
  const Val low = b.select(b.less(x, b.neg(lambda)), b.add(x, lambda), b.mul(x, number(b, x, 0)));
  return b.select(b.binary(Opcode::greater, x, lambda), b.sub(x, lambda), low);
}
double softshrink_reference(Evaluation& e, double x) {
  const double lambda = e.real(1);
  if (compare_less(lambda, x)) return x - lambda;
  return x < -lambda ? x + lambda : x * 0;
}

// --- prelu, glu
// -------------------------------------------------------------------------------------

Val prelu_value(BodyBuilder& b, Val x, Val w) {
  return b.select(b.binary(Opcode::greater, x, number(b, x, 0)), x, b.mul(w, x));
}

// One half of dimension `dim`: indices of the result shifted by half the size.
Types infer_glu(Inference& args) {
  const infer::Type& x = infer::computable(args, 0);
  if (x.rank() == 0) args.fail("needs a tensor with dimensions");
  const std::size_t dim = args.dim(args.constant_integer(1), x.rank());
  Sizes sizes = x.sizes;
  if (!sym::divides(2, sizes[dim])) args.fail("the size must be even");
  sizes[dim] = floordiv(sizes[dim], 2);
  return {infer::make(x, x.dtype, std::move(sizes))};
}

void lower_glu(Lowering& l) {
  const graph::Type& r = l.result_type();
  const std::size_t dim = l.args().dim(l.args().constant_integer(1), r.rank());
  const DType compute = abi::compute_type(r.dtype);
  l.result(l.pointwise(r.sizes, r.dtype, [&](BodyBuilder& b, Indices i) {
    std::vector<Expr> second(i.begin(), i.end());
    second[dim] = second[dim] + r.sizes[dim];
    const Val x = b.cast(l.element(b, l.tensor(0), i), compute);
    const Val gate = b.cast(l.element(b, l.tensor(0), second), compute);
    return b.mul(x, sigmoid_value(b, gate));
  }));
}

void ref_glu(Evaluation& e) {
  const RefTensor& x = e.tensor(0);
  const std::size_t dim = e.dim(e.integer(1), x.rank());
  for_each_index(e.result().sizes, [&](std::span<const std::int64_t> i, std::size_t p) {
    std::vector<std::int64_t> second(i.begin(), i.end());
    second[dim] += e.result().sizes[dim];
    e.result().set(p, x.real(x.at(i)) * sigmoid_reference(x.real(x.at(second))));
  });
}

// Two results: the value and, for eager's backward on the CPU, exp(-|x|).
Types infer_log_sigmoid_forward(Inference& args) {
  const infer::Type& x = infer::computable(args, 0);
  return {infer::make(x, x.dtype, x.sizes), infer::make(x, x.dtype, x.sizes)};
}
void lower_log_sigmoid_forward(Lowering& l) {
  const DType dtype = l.result_type().dtype;
  const auto record = [&](std::size_t result, auto&& f) {
    if (!l.is_used(result)) return;
    l.result(result, l.pointwise(l.result_type().sizes, dtype, [&](BodyBuilder& b, Indices i) {
      return f(b, operand(l, b, 0, i, dtype));
    }));
  };
  record(0, log_sigmoid_value);
  record(1, [](BodyBuilder& b, Val x) {
    return b.unary(Opcode::exp, b.neg(b.unary(Opcode::abs, x)));
  });
}
void ref_log_sigmoid_forward(Evaluation& e) {
  for (std::size_t p = 0; p < e.result().count(); ++p) {
    const double x = e.tensor(0).real(p);
    e.result(0).set(p, log_sigmoid_reference(x));
    e.result(1).set(p, std::exp(-std::abs(x)));
  }
}

// --- Samples
// ----------------------------------------------------------------------------------------

std::vector<DType> floats() { return {DType::f32, DType::f64, DType::bf16, DType::f16}; }

std::vector<graph::Sample> wide() {
  return {{"wide", [](SampleBuilder& s) { return Args{s.free_tensor({3, 7}, -9, 9)}; }, floats()}};
}
std::vector<graph::Sample> gelu_samples() {
  return {{"erf",
           [](SampleBuilder& s) {
             return Args{s.free_tensor({3, 7}, -5, 5)};
           },
           floats()},
          {"tanh",
           [](SampleBuilder& s) {
             return Args{s.free_tensor({3, 7}, -5, 5), std::string("tanh")};
           },
           floats()}};
}
std::vector<graph::Sample> threshold_samples() {
  return {{"half",
           [](SampleBuilder& s) {
             return Args{s.free_tensor({3, 7}), 0.5, -1.0};
           },
           floats()}};
}
std::vector<graph::Sample> prelu_samples() {
  return {{"one", [](SampleBuilder& s) {
             return Args{s.free_tensor({3, 4}), s.tensor({s.constant(1), s.size(4)})};
           }}};
}
std::vector<graph::Sample> glu_samples() {
  return {{"last", [](SampleBuilder& s) {
             return Args{s.tensor({s.size(3), s.constant(8)}), s.constant(-1)};
           }}};
}

constexpr OpDef row(std::string_view name, std::string_view aten, std::string_view doc,
                    void (*lower)(Lowering&), void (*reference)(Evaluation&),
                    std::string_view schema = "(self: tensor) -> tensor",
                    SampleFunction sample = wide, Types (*rule)(Inference&) = infer::same) {
  return {.name = name,
          .schema = schema,
          .doc = doc,
          .traits = kPointwise,
          .infer = rule,
          .lower = lower,
          .reference = reference,
          .aten = aten,
          .samples = sample};
}

constexpr OpDef kActivations[] = {
    row("celu", "aten::celu", "elu with the slope continuous at 0.",
        lower_unary_with<[](Lowering& l, BodyBuilder& b, Val x) {
          return elu_value(b, x, l.args().real(1), 1, 1 / l.args().real(1));
        }>,
        ref_unary_with<[](Evaluation& e, double x) {
          return elu_reference(x, e.real(1), 1, 1 / e.real(1));
        }>,
        "(self: tensor, alpha: scalar = 1.0) -> tensor", wide, of_floats),
    row("elu", "aten::elu", "x above 0, alpha * (exp(x) - 1) below, scaled.",
        lower_unary_with<[](Lowering& l, BodyBuilder& b, Val x) {
          return elu_value(b, x, l.args().real(1), l.args().real(2), l.args().real(3));
        }>,
        ref_unary_with<[](Evaluation& e, double x) {
          return elu_reference(x, e.real(1), e.real(2), e.real(3));
        }>,
        "(self: tensor, alpha: scalar = 1, scale: scalar = 1, input_scale: scalar = 1) -> tensor",
        wide, of_floats),
    row("gelu", "aten::gelu", "x times the normal distribution function, exact or by tanh.",
        lower_unary_with<gelu_value>, ref_unary_with<gelu_reference>,
        "(self: tensor, approximate: string = \"none\") -> tensor", gelu_samples, infer_gelu),
    {.name = "glu",
     .schema = "(self: tensor, dim: integer = -1) -> tensor",
     .doc = "First half of a dimension times the sigmoid of the second.",
     .infer = infer_glu,
     .lower = lower_glu,
     .reference = ref_glu,
     .aten = "aten::glu",
     .samples = glu_samples},
    row("hardshrink", "aten::hardshrink", "0 inside [-lambd, lambd], else x.",
        lower_unary_with<hardshrink_value>, ref_unary_with<[](Evaluation& e, double x) {
          return x >= -e.real(1) && x <= e.real(1) ? 0 : x;
        }>,
        "(self: tensor, lambd: scalar = 0.5) -> tensor"),
    row("hardsigmoid", "aten::hardsigmoid", "clamp(x + 3, 0, 6) / 6.",
        lower_unary<hardsigmoid_value>,
        ref_unary<[](double x) { return clamp_reference(x + 3, 0, 6) / 6; }>),
    row("hardswish", "aten::hardswish", "x * clamp(x + 3, 0, 6) / 6.", lower_unary<hardswish_value>,
        ref_unary<[](double x) { return x * clamp_reference(x + 3, 0, 6) / 6; }>),
    row("hardtanh", "aten::hardtanh", "clamp(x, min_val, max_val).",
        lower_unary_with<[](Lowering& l, BodyBuilder& b, Val x) {
          return clamp_value(b, x, l.args().real(1), l.args().real(2));
        }>,
        ref_unary_with<[](Evaluation& e, double x) {
          return clamp_reference(x, e.real(1), e.real(2));
        }>,
        "(self: tensor, min_val: scalar = -1, max_val: scalar = 1) -> tensor"),
    row("leaky_relu", "aten::leaky_relu", "x above 0, negative_slope * x below.",
        lower_unary_with<leaky_relu_value>, ref_unary_with<[](Evaluation& e, double x) {
          return x <= 0 ? x * round_to(abi::compute_type(e.result().dtype), e.real(1)) : x;
        }>,
        "(self: tensor, negative_slope: scalar = 0.01) -> tensor"),
    row("log_sigmoid", "aten::log_sigmoid", "log(sigmoid(x)).", lower_unary<log_sigmoid_value>,
        ref_unary<log_sigmoid_reference>),
    {.name = "log_sigmoid_forward",
     .schema = "(self: tensor) -> tensor, tensor",
     .doc = "log(sigmoid(x)) and exp(-|x|), which its backward reads.",
     .traits = kPointwise,
     .infer = infer_log_sigmoid_forward,
     .lower = lower_log_sigmoid_forward,
     .reference = ref_log_sigmoid_forward,
     .aten = "aten::log_sigmoid_forward",
     .samples = wide},
    row("mish", "aten::mish", "x * tanh(softplus(x)).", lower_unary<mish_value>,
        ref_unary<[](double x) { return x * std::tanh(std::log1p(std::exp(x))); }>,
        "(self: tensor) -> tensor", wide, of_floats),
    row("prelu", "aten::_prelu_kernel", "x above 0, weight * x below; weight broadcasts.",
        lower_binary<prelu_value>,
        ref_binary<[](double x, double w) { return x <= 0 ? w * x : x; }>,
        "(self: tensor, weight: tensor) -> tensor", prelu_samples, infer::binary),
    row("relu", "aten::relu", "max(x, 0); NaN propagates.", lower_unary<relu_value>,
        ref_unary_split<[](double x) { return x < 0 ? 0 : x; },
                        [](std::int64_t x) { return x < 0 ? 0 : x; }>,
        "(self: tensor) -> tensor", samples::unary_number, infer_relu),
    row("relu6", "aten::relu6", "clamp(x, 0, 6).",
        lower_unary<[](BodyBuilder& b, Val x) { return clamp_value(b, x, 0, 6); }>,
        ref_unary<[](double x) { return clamp_reference(x, 0, 6); }>),
    row("selu", "aten::selu", "elu with the self-normalising constants.",
        lower_unary<[](BodyBuilder& b, Val x) {
          return elu_value(b, x, kSeluAlpha, kSeluScale, 1);
        }>,
        ref_unary<[](double x) { return elu_reference(x, kSeluAlpha, kSeluScale, 1); }>),
    row("sigmoid", "aten::sigmoid aten::special_expit", "1 / (1 + exp(-x)).",
        lower_unary<sigmoid_value, In::as_float>, ref_unary<sigmoid_reference, In::as_float>,
        "(self: tensor) -> tensor", samples::unary_float, infer::float_unary),
    row("silu", "aten::silu", "x * sigmoid(x).", lower_unary<silu_value>,
        ref_unary<[](double x) { return x / (1 + std::exp(-x)); }>, "(self: tensor) -> tensor",
        wide, of_floats),
    row("softplus", "aten::softplus", "log(1 + exp(beta * x)) / beta, x where that is large.",
        lower_unary_with<softplus_value>, ref_unary_with<softplus_reference>,
        "(self: tensor, beta: scalar = 1, threshold: scalar = 20) -> tensor", wide, of_floats),
    row("softshrink", "aten::softshrink", "x moved by lambd towards 0.",
        lower_unary_with<softshrink_value>, ref_unary_with<softshrink_reference>,
        "(self: tensor, lambd: scalar = 0.5) -> tensor"),
    row("threshold", "aten::threshold", "x above threshold, else value.",
        lower_unary_with<threshold_value>, ref_threshold,
        "(self: tensor, threshold: scalar, value: scalar) -> tensor", threshold_samples),
};

}  // namespace

std::span<const graph::OpDef> activation_ops() { return kActivations; }

}  // namespace inkle::ops
