// Gradients of activation functions, with eager's formulas: (grad_output, self or output).
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
Val zero(BodyBuilder& b, Val like) { return constant_like(b, like, 0); }
Val compare(BodyBuilder& b, Opcode op, Val x, double value) {
  return b.binary(op, x, constant_like(b, x, value));
}

Val sigmoid_of(BodyBuilder& b, Val x) {
  const Val one = number(b, x, 1);
  return b.div(one, b.add(one, b.unary(Opcode::exp, b.neg(x))));
}
double sigmoid_of(double x) { return 1 / (1 + std::exp(-x)); }

// g * (cdf + x * pdf), or the derivative of the tanh form.
Val gelu_value(Lowering& l, BodyBuilder& b, Val g, Val x) {
  const Val half = number(b, x, 0.5), one = number(b, x, 1);
  if (l.args().string(2) == "none") {
    const Val cdf = b.mul(
        half, b.add(one, b.unary(Opcode::erf, b.mul(x, number(b, x, std::numbers::sqrt2 / 2)))));
    const Val density = b.mul(number(b, x, std::numbers::inv_sqrtpi * std::numbers::sqrt2 * 0.5),
                              b.unary(Opcode::exp, b.mul(b.mul(x, x), number(b, x, -0.5))));
    return b.mul(g, b.add(cdf, b.mul(x, density)));
  }
  const Val beta = number(b, x, std::numbers::sqrt2 * std::numbers::inv_sqrtpi);
  const Val kappa = number(b, x, 0.044715);
  const Val square = b.mul(x, x);
  const Val inner = b.mul(beta, b.add(x, b.mul(kappa, b.mul(square, x))));
  const Val t = b.unary(Opcode::tanh, inner);
  const Val left = b.mul(half, b.add(one, t));
  const Val slope = b.mul(beta, b.add(one, b.mul(b.mul(number(b, x, 3), kappa), square)));
  const Val right = b.mul(b.mul(b.mul(half, x), b.sub(one, b.mul(t, t))), slope);
  return b.mul(g, b.add(left, right));
}

double gelu_reference(Evaluation& e, double g, double x) {
  if (e.string(2) == "none") {
    const double cdf = 0.5 * (1 + std::erf(x / std::numbers::sqrt2));
    return g * (cdf + x * std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi));
  }
  const double beta = std::sqrt(2 / std::numbers::pi);
  const double t = std::tanh(beta * (x + 0.044715 * x * x * x));
  return g * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * beta * (1 + 3 * 0.044715 * x * x));
}

Val silu_value(BodyBuilder& b, Val g, Val x) {
  const Val one = number(b, x, 1);
  const Val s = sigmoid_of(b, x);
  return b.mul(b.mul(g, s), b.add(one, b.mul(x, b.sub(one, s))));
}

Val mish_value(BodyBuilder& b, Val g, Val x) {
  const Val s = sigmoid_of(b, x), one = number(b, x, 1);
  const Val t = b.unary(Opcode::tanh, b.unary(Opcode::log1p, b.unary(Opcode::exp, x)));
  return b.mul(g, b.add(t, b.mul(b.mul(x, s), b.sub(one, b.mul(t, t)))));
}
double mish_reference(double g, double x) {
  const double t = std::tanh(std::log1p(std::exp(x)));
  return g * (t + x * sigmoid_of(x) * (1 - t * t));
}

// g inside (low, high), else 0.
Val inside_value(BodyBuilder& b, Val g, Val x, double low, double high) {
  const Val outside = b.logical_or(compare(b, Opcode::less_equal, x, low),
                                   compare(b, Opcode::greater_equal, x, high));
  return b.select(outside, zero(b, g), g);
}
bool is_inside(double x, double low, double high) { return !(x <= low || x >= high); }

Val threshold_value(Lowering& l, BodyBuilder& b, Val g, Val x) {
  return b.select(compare(b, Opcode::less_equal, x, l.args().real(2)), zero(b, g), g);
}
Val hardtanh_value(Lowering& l, BodyBuilder& b, Val g, Val x) {
  return inside_value(b, g, x, l.args().real(2), l.args().real(3));
}

// 0 at and below -3, g * (x / 3 + 0.5) up to 3, g from 3 on.
Val hardswish_value(BodyBuilder& b, Val g, Val x) {
  const Val middle = b.mul(g, b.add(b.div(x, number(b, x, 3)), number(b, x, 0.5)));
  const Val upper = b.select(compare(b, Opcode::less, x, 3), middle, g);
  return b.select(compare(b, Opcode::less_equal, x, -3), zero(b, g), upper);
}
double hardswish_reference(double g, double x) {
  return x <= -3 ? 0 : x < 3 ? g * (x / 3 + 0.5) : g;
}

// A sixth is rounded to f32 in eager, for f64 too.
constexpr double kSixth = static_cast<double>(1.0F / 6.0F);

Val hardsigmoid_value(BodyBuilder& b, Val g, Val x) {
  const Val inside =
      b.logical_and(compare(b, Opcode::greater, x, -3), compare(b, Opcode::less, x, 3));
  return b.select(inside, b.mul(g, number(b, x, kSixth)), zero(b, g));
}
double hardsigmoid_reference(double g, double x) { return (x > -3) && x < 3 ? g * kSixth : 0; }

Val leaky_relu_value(Lowering& l, BodyBuilder& b, Val g, Val x) {
  return b.select(compare(b, Opcode::greater, x, 0), g, b.mul(g, number(b, x, l.args().real(2))));
}
double leaky_relu_reference(Evaluation& e, double g, double x) {
  return (x > 0) ? g : g * round_to(abi::compute_type(e.result().dtype), e.real(2));
}

// z = exp(beta * x); g * z / (z + 1) where beta * x is at most the threshold, else g.
Val softplus_value(Lowering& l, BodyBuilder& b, Val g, Val x) {
  const Val scaled = b.mul(x, number(b, x, l.args().real(2)));
  const Val z = b.unary(Opcode::exp, scaled);
  const Val soft = b.div(b.mul(g, z), b.add(z, number(b, x, 1)));
  return b.select(compare(b, Opcode::greater, scaled, l.args().real(3)), g, soft);
}
double softplus_reference(Evaluation& e, double g, double x) {
  const double scaled = x * e.real(2);
  return (scaled > e.real(3)) ? g : g * sigmoid_of(scaled);
}

// Arguments: grad_output, alpha, scale, input_scale, is_result, self_or_result.
Types infer_elu(Inference& args) {
  return {infer::broadcast_all(args, {0, 5}, common_dtype(args, {0, 5}))};
}
void lower_elu(Lowering& l) {
  const DType in = common_dtype(l.args(), {0, 5});
  const graph::Type& r = l.result_type();
  const double alpha = l.args().real(1), scale = l.args().real(2), input = l.args().real(3);
  l.result(l.pointwise(r.sizes, r.dtype, [&](BodyBuilder& b, Indices i) {
    const Val g = operand(l, b, 0, i, in), x = operand(l, b, 5, i, in);
    const Val below =
        l.args().boolean(4)
            ? b.mul(b.mul(g, number(b, x, input)), b.add(x, number(b, x, alpha * scale)))
            : b.mul(b.mul(g, number(b, x, input * alpha * scale)),
                    b.unary(Opcode::exp, b.mul(x, number(b, x, input))));
    return b.select(compare(b, Opcode::less_equal, x, 0), below, b.mul(g, number(b, x, scale)));
  }));
}
void ref_elu(Evaluation& e) {
  const double alpha = e.real(1), scale = e.real(2), input = e.real(3);
  for (std::size_t p = 0; p < e.result().count(); ++p) {
    const double g = e.tensor(0).real(p), x = e.tensor(5).real(p);
    const double below = e.boolean(4) ? g * input * (x + alpha * scale)
                                      : g * input * alpha * scale * std::exp(x * input);
    e.result().set(p, x <= 0 ? below : g * scale);
  }
}

// sigmoid(-x) times g, written with the saved exp(-|x|).
Val log_sigmoid_value(BodyBuilder& b, Val g, Val x) {
  const Val z = b.unary(Opcode::exp, b.neg(b.unary(Opcode::abs, x)));
  const Val is_negative = compare(b, Opcode::less, x, 0);
  const Val one = number(b, x, 1);
  const Val most = b.select(is_negative, one, zero(b, x));
  const Val sign = b.select(is_negative, one, number(b, x, -1));
  return b.mul(b.sub(most, b.mul(sign, b.div(z, b.add(one, z)))), g);
}

Val shrink_value(Lowering& l, BodyBuilder& b, Val g, Val x) {
  const double lambda = l.args().real(2);
  const Val inside = b.logical_and(compare(b, Opcode::greater_equal, x, -lambda),
                                   compare(b, Opcode::less_equal, x, lambda));
  return b.select(inside, zero(b, g), g);
}
double shrink_reference(Evaluation& e, double g, double x) {
  return x >= -e.real(2) && x <= e.real(2) ? 0 : g;
}

std::vector<DType> floats() { return {DType::f32, DType::f64, DType::bf16}; }
Args pair(SampleBuilder& s) { return {s.free_tensor({3, 5}), s.free_tensor({3, 5}, -5, 5)}; }

std::vector<graph::Sample> plain() { return {{"plain", pair, floats()}}; }
std::vector<graph::Sample> gelu_samples() {
  return {{"erf", pair, floats()},
          {"tanh",
           [](SampleBuilder& s) {
             Args args = pair(s);
             args.emplace_back(std::string("tanh"));
             return args;
           },
           floats()}};
}
std::vector<graph::Sample> one_number() {
  return {{"half",
           [](SampleBuilder& s) {
             Args args = pair(s);
             args.emplace_back(0.5);
             return args;
           },
           floats()}};
}
std::vector<graph::Sample> two_numbers() {
  return {{"range",
           [](SampleBuilder& s) {
             Args args = pair(s);
             args.emplace_back(0.5);
             args.emplace_back(2.0);
             return args;
           },
           floats()}};
}
std::vector<graph::Sample> leaky_samples() {
  return {{"slope",
           [](SampleBuilder& s) {
             Args args = pair(s);
             args.emplace_back(0.01);
             args.emplace_back(false);
             return args;
           },
           floats()}};
}
std::vector<graph::Sample> elu_samples() {
  return {{"input",
           [](SampleBuilder& s) {
             return Args{s.free_tensor({3, 5}), 1.5, 1.0, 1.0, false, s.free_tensor({3, 5})};
           },
           floats()}};
}
std::vector<graph::Sample> log_sigmoid_samples() {
  return {{"plain",
           [](SampleBuilder& s) {
             Args args = pair(s);
             args.push_back(args[1]);
             return args;
           },
           floats()}};
}

constexpr OpDef row(std::string_view name, std::string_view aten, std::string_view doc,
                    std::string_view more, void (*lower)(Lowering&), void (*reference)(Evaluation&),
                    SampleFunction sample) {
  return {.name = name,
          .schema = more,
          .doc = doc,
          .traits = kPointwise,
          .infer = infer::binary,
          .lower = lower,
          .reference = reference,
          .aten = aten,
          .samples = sample};
}

constexpr std::string_view kPair = "(grad_output: tensor, self: tensor) -> tensor";
constexpr std::string_view kShrink = "(grad_output: tensor, self: tensor, lambd: scalar) -> tensor";

constexpr OpDef kBackward[] = {
    {.name = "elu_backward",
     .schema = "(grad_output: tensor, alpha: scalar, scale: scalar, input_scale: scalar, "
               "is_result: boolean, self_or_result: tensor) -> tensor",
     .doc = "Gradient of elu.",
     .traits = kPointwise,
     .infer = infer_elu,
     .lower = lower_elu,
     .reference = ref_elu,
     .aten = "aten::elu_backward",
     .samples = elu_samples},
    row("gelu_backward", "aten::gelu_backward", "Gradient of gelu.",
        "(grad_output: tensor, self: tensor, approximate: string = \"none\") -> tensor",
        lower_binary_with<gelu_value>, ref_binary_with<gelu_reference>, gelu_samples),
    row("hardshrink_backward", "aten::hardshrink_backward", "Gradient of hardshrink.", kShrink,
        lower_binary_with<shrink_value>, ref_binary_with<shrink_reference>, one_number),
    row("hardsigmoid_backward", "aten::hardsigmoid_backward", "Gradient of hardsigmoid.", kPair,
        lower_binary<hardsigmoid_value>, ref_binary<hardsigmoid_reference>, plain),
    row("hardswish_backward", "aten::hardswish_backward", "Gradient of hardswish.", kPair,
        lower_binary<hardswish_value>, ref_binary<hardswish_reference>, plain),
    row("hardtanh_backward", "aten::hardtanh_backward", "Gradient of hardtanh.",
        "(grad_output: tensor, self: tensor, min_val: scalar, max_val: scalar) -> tensor",
        lower_binary_with<hardtanh_value>, ref_binary_with<[](Evaluation& e, double g, double x) {
          return is_inside(x, e.real(2), e.real(3)) ? g : 0;
        }>,
        two_numbers),
    row("leaky_relu_backward", "aten::leaky_relu_backward", "Gradient of leaky_relu.",
        "(grad_output: tensor, self: tensor, negative_slope: scalar, self_is_result: boolean)"
        " -> tensor",
        lower_binary_with<leaky_relu_value>, ref_binary_with<leaky_relu_reference>, leaky_samples),
    row("log_sigmoid_backward", "aten::log_sigmoid_backward", "Gradient of log_sigmoid.",
        "(grad_output: tensor, self: tensor, buffer: tensor) -> tensor",
        lower_binary<log_sigmoid_value>,
        ref_binary<[](double g, double x) { return g * sigmoid_of(-x); }>, log_sigmoid_samples),
    row("mish_backward", "aten::mish_backward", "Gradient of mish.", kPair,
        lower_binary<mish_value>, ref_binary<mish_reference>, plain),
    row("sigmoid_backward", "aten::sigmoid_backward", "Gradient of sigmoid, from its output.",
        "(grad_output: tensor, output: tensor) -> tensor",
        lower_binary<[](BodyBuilder& b, Val g, Val y) {
          return b.mul(b.mul(g, b.sub(number(b, y, 1), y)), y);
        }>,
        ref_binary<[](double g, double y) { return g * (1 - y) * y; }>, plain),
    row("silu_backward", "aten::silu_backward", "Gradient of silu.", kPair,
        lower_binary<silu_value>, ref_binary<[](double g, double x) {
          return g * sigmoid_of(x) * (1 + x * (1 - sigmoid_of(x)));
        }>,
        plain),
    row("softplus_backward", "aten::softplus_backward", "Gradient of softplus.",
        "(grad_output: tensor, self: tensor, beta: scalar, threshold: scalar) -> tensor",
        lower_binary_with<softplus_value>, ref_binary_with<softplus_reference>, two_numbers),
    row("softshrink_backward", "aten::softshrink_backward", "Gradient of softshrink.", kShrink,
        lower_binary_with<shrink_value>, ref_binary_with<shrink_reference>, one_number),
    row("tanh_backward", "aten::tanh_backward", "Gradient of tanh, from its output.",
        "(grad_output: tensor, output: tensor) -> tensor",
        lower_binary<[](BodyBuilder& b, Val g, Val y) {
          return b.mul(g, b.sub(number(b, y, 1), b.mul(y, y)));
        }>,
        ref_binary<[](double g, double y) { return g * (1 - y * y); }>, plain),
    row("threshold_backward", "aten::threshold_backward", "Gradient of threshold and relu.",
        "(grad_output: tensor, self: tensor, threshold: scalar) -> tensor",
        lower_binary_with<threshold_value>,
        ref_binary_with<[](Evaluation& e, double g, double x) { return x <= e.real(2) ? 0 : g; }>,
        one_number),
};

}  // namespace

std::span<const graph::OpDef> activation_backward_ops() { return kBackward; }

}  // namespace inkle::ops
