// Upsampling: along each spatial dimension a result element is a weighted sum of 1 (nearest),
// 2 (linear) or 4 (cubic) input elements, whose positions are computed as ATen computes them, in
// the type that the data is computed in.
#include <algorithm>
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
using graph::ValueId;
using infer::Types;

enum class Mode { nearest, nearest_exact, linear, cubic };
constexpr bool has_corners(Mode mode) { return mode == Mode::linear || mode == Mode::cubic; }

// (self, output_size, [align_corners,] scale of each dimension?...)
template <Mode mode, std::size_t rank>
Types infer_resize(Inference& in) {
  const Type& x = float_tensor(in, 0);
  if (x.rank() != rank + 2) in.fail("the input has the wrong rank");
  const std::vector<Expr> output = in.integers(1);
  if (output.size() != rank) in.fail("output_size has the wrong length");
  Sizes sizes = {x.sizes[0], x.sizes[1]};
  sizes.insert(sizes.end(), output.begin(), output.end());
  return {infer::make(x, x.dtype, std::move(sizes))};
}

// How positions of one dimension map to the input.
struct Dimension {
  Expr input, output;
  bool align_corners = false;
  std::optional<double> factor;  // output over input, as the caller gave it
};
template <class Source>
std::optional<double> factor_at(const Source& in, std::size_t arg) {
  if (in.is_none(arg) || !(in.real(arg) > 0)) return std::nullopt;
  return in.real(arg);
}

// Input elements over output elements.
Val scale_of(BodyBuilder& b, const Dimension& d, DType compute) {
  const auto number = [&](Expr e) { return b.cast(b.index(e), compute); };
  if (d.align_corners) {
    if (d.output.is_constant(1)) return b.constant(compute, 0.0);
    const Val scale = b.div(number(d.input - 1), number(d.output - 1));
    if (d.output.is_constant()) return scale;
    const Val single =
        b.binary(Opcode::equal, b.index(d.output), b.constant(DType::i64, std::int64_t{1}));
    return b.select(single, b.constant(compute, 0.0), scale);
  }
  if (d.factor) return b.constant(compute, 1 / *d.factor);
  return b.div(number(d.input), number(d.output));
}

struct Tap {
  Expr index;
  std::optional<Val> weight;  // none: 1
};

// The position clamped into the input, as an index.
Expr clamped(BodyBuilder& b, Val position, Expr size) {
  const Val zero = b.constant(DType::i64, std::int64_t{0});
  const Val inside = b.min(b.max(position, zero), b.index(size - 1));
  return b.indirect(inside, size);
}

std::vector<Tap> nearest_tap(BodyBuilder& b, const Dimension& d, Expr o, DType compute,
                             bool exact) {
  // An integer factor needs no arithmetic on floats.
  const bool divides = !d.input.is_constant(0) && sym::divides(d.input, d.output);
  const Expr whole = divides ? floordiv(d.output, d.input) : Expr();
  const auto constant = whole.is_null() ? std::nullopt : whole.constant();
  if (constant && (!d.factor || *d.factor == static_cast<double>(*constant))) {
    return {{.index = floordiv(o, *constant)}};
  }
  Val position = b.cast(b.index(o), compute);
  if (exact) position = b.add(position, b.constant(compute, 0.5));
  const Val scaled = b.unary(Opcode::floor, b.mul(position, scale_of(b, d, compute)));
  return {{.index = clamped(b, b.cast(scaled, DType::i64), d.input)}};
}

// Where o lies in the input.
Val source_position(BodyBuilder& b, const Dimension& d, Expr o, DType compute, bool is_cubic) {
  const Val at = b.cast(b.index(o), compute);
  const Val scale = scale_of(b, d, compute);
  if (d.align_corners) return b.mul(scale, at);
  const Val half = b.constant(compute, 0.5);
  const Val position = b.sub(b.mul(scale, b.add(at, half)), half);
  return is_cubic ? position : b.max(position, b.constant(compute, 0.0));
}
std::vector<Tap> linear_taps(BodyBuilder& b, const Dimension& d, Expr o, DType compute) {
  const Val position = source_position(b, d, o, compute, false);
  const Val low = b.unary(Opcode::floor, position);
  const Val fraction = b.sub(position, low);
  const Val first = b.cast(low, DType::i64);
  const Val one = b.constant(DType::i64, std::int64_t{1});
  return {{clamped(b, first, d.input), b.sub(b.constant(compute, 1.0), fraction)},
          {clamped(b, b.add(first, one), d.input), fraction}};
}
// Keys' cubic with A = -0.75, as ATen's.
constexpr double kCubicA = -0.75;
// ((A + 2) x - (A + 3)) x^2 + 1, for |x| <= 1.
Val cubic_near(BodyBuilder& b, Val x) {
  const DType t = b.dtype(x);
  const Val inner = b.sub(b.mul(b.constant(t, kCubicA + 2), x), b.constant(t, kCubicA + 3));
  return b.add(b.mul(b.mul(inner, x), x), b.constant(t, 1.0));
}
// ((A x - 5 A) x + 8 A) x - 4 A, for 1 < |x| < 2.
Val cubic_far(BodyBuilder& b, Val x) {
  const DType t = b.dtype(x);
  const auto c = [&](double v) { return b.constant(t, v * kCubicA); };
  const Val inner = b.add(b.mul(b.sub(b.mul(c(1), x), c(5)), x), c(8));
  return b.sub(b.mul(inner, x), c(4));
}
std::vector<Tap> cubic_taps(BodyBuilder& b, const Dimension& d, Expr o, DType compute) {
  const Val position = source_position(b, d, o, compute, true);
  const Val low = b.unary(Opcode::floor, position);
  const Val t = b.sub(position, low);
  const Val one = b.constant(compute, 1.0);
  const Val opposite = b.sub(one, t);
  const Val first = b.cast(low, DType::i64);
  const auto index = [&](std::int64_t offset) {
    return clamped(b, b.add(first, b.constant(DType::i64, offset)), d.input);
  };
  return {{index(-1), cubic_far(b, b.add(t, one))},
          {index(0), cubic_near(b, t)},
          {index(1), cubic_near(b, opposite)},
          {index(2), cubic_far(b, b.add(opposite, one))}};
}

// Weighted sum over the taps of dimension `dim` and those after it.
Val combine(const Lowering& l, BodyBuilder& b, const Tensor& x,
            const std::vector<std::vector<Tap>>& taps, std::size_t dim, std::vector<Expr>& at) {
  if (dim == taps.size()) return element_as(l, b, x, at, abi::compute_type(x.dtype));
  std::optional<Val> sum;
  for (const Tap& tap : taps[dim]) {
    at[dim + 2] = tap.index;
    Val v = combine(l, b, x, taps, dim + 1, at);
    if (tap.weight) v = b.mul(v, *tap.weight);
    sum = sum ? b.add(*sum, v) : v;
  }
  return *sum;
}

template <Mode mode, std::size_t rank>
void lower_resize(Lowering& l) {
  const Tensor& x = l.tensor(0);
  const Sizes& sizes = l.result_type().sizes;
  const DType compute = abi::compute_type(x.dtype);
  const std::size_t scales = has_corners(mode) ? 3 : 2;
  std::vector<Dimension> dims;
  for (std::size_t d = 0; d < rank; ++d) {
    dims.push_back({x.sizes[d + 2], sizes[d + 2], has_corners(mode) && l.args().boolean(2),
                    factor_at(l.args(), scales + d)});
  }
  l.result(l.pointwise(sizes, x.dtype, [&](BodyBuilder& b, Indices o) {
    std::vector<std::vector<Tap>> taps;
    for (std::size_t d = 0; d < rank; ++d) {
      switch (mode) {
        case Mode::nearest:
        case Mode::nearest_exact:
          taps.push_back(nearest_tap(b, dims[d], o[d + 2], compute, mode == Mode::nearest_exact));
          break;
        case Mode::linear:
          taps.push_back(linear_taps(b, dims[d], o[d + 2], compute));
          break;
        case Mode::cubic:
          taps.push_back(cubic_taps(b, dims[d], o[d + 2], compute));
          break;
      }
    }
    std::vector<Expr> at(o.begin(), o.end());
    return combine(l, b, x, taps, 0, at);
  }));
}

struct ReferenceTap {
  std::int64_t index;
  double weight;
};
double reference_cubic(double x) {
  x = std::abs(x);
  if (x <= 1) return ((kCubicA + 2) * x - (kCubicA + 3)) * x * x + 1;
  return ((kCubicA * x - 5 * kCubicA) * x + 8 * kCubicA) * x - 4 * kCubicA;
}
std::vector<ReferenceTap> reference_taps(Mode mode, std::int64_t input, std::int64_t output,
                                         std::int64_t o, bool corners,
                                         std::optional<double> factor) {
  const auto at = static_cast<double>(o);
  double scale = static_cast<double>(input) / static_cast<double>(output);
  if (factor) scale = 1 / *factor;
  if (corners) {
    scale = output > 1 ? static_cast<double>(input - 1) / static_cast<double>(output - 1) : 0;
  }
  const auto inside = [&](double i) {
    return static_cast<std::int64_t>(std::clamp<double>(i, 0, static_cast<double>(input - 1)));
  };
  // Positions by f32 arithmetic, as ATen's: floor is not continuous.
  const auto single = static_cast<float>(scale);
  if (mode == Mode::nearest) {
    return {{inside(std::floor(static_cast<float>(o) * single)), 1.0}};
  }
  if (mode == Mode::nearest_exact) {
    return {{inside(std::floor((static_cast<float>(o) + 0.5F) * single)), 1.0}};
  }
  double position = corners ? at * scale : (at + 0.5) * scale - 0.5;
  if (mode == Mode::linear) position = std::max(position, 0.0);
  const double low = std::floor(position), t = position - low;
  if (mode == Mode::linear) return {{inside(low), 1 - t}, {inside(low + 1), t}};
  std::vector<ReferenceTap> taps;
  for (int k = -1; k <= 2; ++k) taps.push_back({inside(low + k), reference_cubic(t - k)});
  return taps;
}
template <Mode mode, std::size_t rank>
void reference_resize(Evaluation& e) {
  const RefTensor& x = e.tensor(0);
  RefTensor& y = e.result();
  const std::size_t scales = has_corners(mode) ? 3 : 2;
  for_each_index(y.sizes, [&](std::span<const std::int64_t> o, std::size_t p) {
    std::vector<std::pair<std::vector<std::int64_t>, double>> terms = {{{o[0], o[1]}, 1.0}};
    for (std::size_t d = 0; d < rank; ++d) {
      std::vector<std::pair<std::vector<std::int64_t>, double>> next;
      for (const auto& [at, weight] : terms) {
        for (const ReferenceTap& tap :
             reference_taps(mode, x.sizes[d + 2], y.sizes[d + 2], o[d + 2],
                            has_corners(mode) && e.boolean(2), factor_at(e, scales + d))) {
          next.emplace_back(at, weight * tap.weight);
          next.back().first.push_back(tap.index);
        }
      }
      terms = std::move(next);
    }
    double sum = 0;
    for (const auto& [at, weight] : terms) sum += weight * x.real(x.at(at));
    y.set(p, sum);
  });
}

// --- The forms with output_size? and scale_factors?: (input, output_size?, [align_corners,]
// scale_factors?)

std::vector<Expr> output_of(const Inference& in, const Type& x, std::size_t scales) {
  if (!in.is_none(1)) return in.integers(1);
  const auto* factors = std::get_if<std::vector<double>>(&in.arg(scales));
  if (factors == nullptr || factors->size() + 2 != x.rank()) in.fail("needs a size or factors");
  std::vector<Expr> sizes;
  for (std::size_t d = 0; d < factors->size(); ++d) {
    const double factor = (*factors)[d];
    const Expr size = x.sizes[d + 2];
    if (factor == std::floor(factor)) {
      sizes.push_back(size * static_cast<std::int64_t>(factor));
    } else if (const auto constant = size.constant()) {
      sizes.push_back(in.context().constant(
          static_cast<std::int64_t>(std::floor(static_cast<double>(*constant) * factor))));
    } else {
      unsupported("{}: a fractional scale factor needs constant sizes", in.op().name);
    }
  }
  return sizes;
}
template <Mode mode>
Types infer_vector(Inference& in) {
  const Type& x = float_tensor(in, 0);
  Sizes sizes = {x.sizes[0], x.sizes[1]};
  const std::vector<Expr> output = output_of(in, x, has_corners(mode) ? 3 : 2);
  if (output.size() + 2 != x.rank()) in.fail("output_size has the wrong length");
  sizes.insert(sizes.end(), output.begin(), output.end());
  return {infer::make(x, x.dtype, std::move(sizes))};
}
constexpr std::string_view name_of(Mode mode, std::size_t rank) {
  constexpr std::string_view kNearest[] = {"upsample_nearest1d", "upsample_nearest2d",
                                           "upsample_nearest3d"};
  constexpr std::string_view kLinear[] = {"upsample_linear1d", "upsample_bilinear2d",
                                          "upsample_trilinear3d"};
  if (mode == Mode::cubic) return "upsample_bicubic2d";
  if (mode == Mode::nearest_exact) return "_upsample_nearest_exact2d";
  return mode == Mode::nearest ? kNearest[rank - 1] : kLinear[rank - 1];
}
template <Mode mode, std::size_t rank>
std::vector<ValueId> decompose_vector(Builder& b, const Node& node) {
  const Inference in(b.graph(), *node.op, node.args);
  const std::size_t scales = has_corners(mode) ? 3 : 2;
  const ValueId x = std::get<ValueId>(node.args[0]);
  std::vector<Argument> arguments = {x, output_of(in, b.type(x), scales)};
  if (has_corners(mode)) arguments.push_back(node.args[2]);
  if (const auto* factors = std::get_if<std::vector<double>>(&node.args[scales])) {
    for (const double factor : *factors) arguments.emplace_back(factor);
  }
  return {b.node(name_of(mode, rank), std::move(arguments))};
}

template <Mode mode, std::size_t rank>
std::vector<Argument> sample(SampleBuilder& s, std::int64_t output) {
  std::vector<Expr> sizes = {s.size(2), s.constant(3)};
  for (std::size_t d = 0; d < rank; ++d) sizes.push_back(s.constant(5 + static_cast<int>(d)));
  std::vector<Argument> arguments = {s.tensor(std::move(sizes)),
                                     std::vector<Expr>(rank, s.constant(output))};
  if (has_corners(mode)) arguments.emplace_back(output % 2 == 0);
  return arguments;
}
template <Mode mode, std::size_t rank>
std::vector<Sample> samples_resize() {
  return {{"larger",
           [](SampleBuilder& s) { return sample<mode, rank>(s, 11); },
           {DType::f32, DType::bf16},
           true},
          {"smaller",
           [](SampleBuilder& s) { return sample<mode, rank>(s, 4); },
           {DType::f32, DType::bf16},
           true},
          {"whole",
           [](SampleBuilder& s) { return sample<mode, rank>(s, 10); },
           {DType::f32, DType::bf16},
           true}};
}
template <Mode mode>
std::vector<Sample> samples_vector() {
  return {{"factors",
           [](SampleBuilder& s) -> std::vector<Argument> {
             std::vector<Argument> arguments = {
                 s.tensor({s.size(2), s.constant(3), s.size(5), s.size(6)}), graph::None{}};
             if (has_corners(mode)) arguments.emplace_back(false);
             arguments.emplace_back(std::vector<double>{2.0, 2.0});
             return arguments;
           },
           {DType::f32}}};
}

constexpr std::string_view kSchemas[] = {
    "(self: tensor, output_size: integer_list, scales: optional_real = none) -> tensor",
    "(self: tensor, output_size: integer_list, scales_h: optional_real = none, "
    "scales_w: optional_real = none) -> tensor",
    "(self: tensor, output_size: integer_list, scales_d: optional_real = none, "
    "scales_h: optional_real = none, scales_w: optional_real = none) -> tensor"};
constexpr std::string_view kCornerSchemas[] = {
    "(self: tensor, output_size: integer_list, align_corners: boolean, "
    "scales: optional_real = none) -> tensor",
    "(self: tensor, output_size: integer_list, align_corners: boolean, "
    "scales_h: optional_real = none, scales_w: optional_real = none) -> tensor",
    "(self: tensor, output_size: integer_list, align_corners: boolean, "
    "scales_d: optional_real = none, scales_h: optional_real = none, "
    "scales_w: optional_real = none) -> tensor"};
constexpr std::string_view kVectorSchema =
    "(input: tensor, output_size: optional_integer_list, scale_factors: optional_real_list) "
    "-> tensor";
constexpr std::string_view kCornerVectorSchema =
    "(input: tensor, output_size: optional_integer_list, align_corners: boolean, "
    "scale_factors: optional_real_list) -> tensor";

constexpr std::string_view doc_of(Mode mode) {
  if (mode == Mode::linear) return "Resizes by linear interpolation.";
  if (mode == Mode::cubic) return "Resizes by cubic interpolation.";
  return "Resizes by the nearest element.";
}
template <Mode mode, std::size_t rank>
constexpr OpDef row(std::string_view aten) {
  return {.name = name_of(mode, rank),
          .schema = has_corners(mode) ? kCornerSchemas[rank - 1] : kSchemas[rank - 1],
          .doc = doc_of(mode),
          .infer = infer_resize<mode, rank>,
          .lower = lower_resize<mode, rank>,
          .reference = reference_resize<mode, rank>,
          .aten = aten,
          .samples = samples_resize<mode, rank>};
}
template <Mode mode, std::size_t rank>
constexpr OpDef vector_row(std::string_view name, std::string_view aten) {
  return {.name = name,
          .schema = has_corners(mode) ? kCornerVectorSchema : kVectorSchema,
          .doc = "Resizes to a size or by factors.",
          .infer = infer_vector<mode>,
          .decompose = decompose_vector<mode, rank>,
          .aten = aten,
          .samples = rank == 2 ? samples_vector<mode> : nullptr};
}

constexpr OpDef kResize[] = {
    row<Mode::nearest_exact, 2>("aten::_upsample_nearest_exact2d"),
    row<Mode::cubic, 2>("aten::upsample_bicubic2d"),
    vector_row<Mode::cubic, 2>("upsample_bicubic2d_vec", "aten::upsample_bicubic2d.vec"),
    row<Mode::linear, 2>("aten::upsample_bilinear2d"),
    vector_row<Mode::linear, 2>("upsample_bilinear2d_vec", "aten::upsample_bilinear2d.vec"),
    row<Mode::linear, 1>("aten::upsample_linear1d"),
    vector_row<Mode::linear, 1>("upsample_linear1d_vec", "aten::upsample_linear1d.vec"),
    row<Mode::nearest, 1>("aten::upsample_nearest1d"),
    vector_row<Mode::nearest, 1>("upsample_nearest1d_vec", "aten::upsample_nearest1d.vec"),
    row<Mode::nearest, 2>("aten::upsample_nearest2d"),
    vector_row<Mode::nearest, 2>("upsample_nearest2d_vec", "aten::upsample_nearest2d.vec"),
    row<Mode::nearest, 3>("aten::upsample_nearest3d"),
    vector_row<Mode::nearest, 3>("upsample_nearest3d_vec", "aten::upsample_nearest3d.vec"),
    row<Mode::linear, 3>("aten::upsample_trilinear3d"),
    vector_row<Mode::linear, 3>("upsample_trilinear3d_vec", "aten::upsample_trilinear3d.vec"),
};

}  // namespace

std::span<const OpDef> resize_ops() { return kResize; }

}  // namespace inkle::ops
