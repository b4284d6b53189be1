// Convolutions and their transposes. Activations keep the layout the plan gives them; weights are
// packed, since oneDNN's fast kernels read blocked ones only.
#include <utility>

#include <algorithm>

#include "base/error.h"
#include "runtime/cpu/library_shapes.h"

namespace inkle::runtime::cpu {
namespace {

// Strides of a dense tensor whose dimensions vary in `order`, the slowest first.
std::vector<std::int64_t> dense(const std::vector<std::int64_t>& sizes,
                                const std::vector<std::size_t>& order) {
  std::vector<std::int64_t> strides(sizes.size());
  std::int64_t step = 1;
  for (std::size_t i = order.size(); i-- > 0;) {
    strides[order[i]] = step;
    step *= sizes[order[i]];
  }
  return strides;
}

bool agrees(const TensorDescription& t, const std::vector<std::int64_t>& strides) {
  for (std::size_t d = 0; d < t.sizes.size(); ++d) {
    if (t.sizes[d] != 1 && t.strides[d] != strides[d]) return false;
  }
  return true;
}

// Dimensions of size 1 have any stride; oneDNN recognises layouts by exact strides, so a tensor
// that can be read as channels-last (or else as channels-first) is described as such.
void name_layout(TensorDescription& t, bool prefer_channels_last) {
  std::vector<std::size_t> first, last = {0};
  for (std::size_t d = 0; d < t.sizes.size(); ++d) first.push_back(d);
  for (std::size_t d = 2; d < t.sizes.size(); ++d) last.push_back(d);
  last.push_back(1);
  const auto channels_first = dense(t.sizes, first);
  const auto channels_last = dense(t.sizes, last);
  const bool is_first = agrees(t, channels_first);
  const bool is_last = agrees(t, channels_last);
  if (is_last && (prefer_channels_last || !is_first)) {
    t.strides = channels_last;
  } else if (is_first) {
    t.strides = channels_first;
  }
}

bool is_channels_last(const TensorDescription& t) { return t.sizes[1] != 1 && t.strides[1] == 1; }

// [o, c/g, k...] or, transposed, [c, o/g, k...]  ->  [g, o/g, c/g, k...]; without g when it is 1.
TensorDescription describe_weights(const TensorDescription& w, std::int64_t groups,
                                   bool transposed) {
  TensorDescription t = w;
  t.sizes[0] /= groups;
  if (transposed) {
    std::swap(t.sizes[0], t.sizes[1]);
    std::swap(t.strides[0], t.strides[1]);
  }
  if (groups != 1) {
    t.sizes.insert(t.sizes.begin(), groups);
    t.strides.insert(t.strides.begin(), w.sizes[0] / groups * w.strides[0]);
  }
  return t;
}

PrimitiveDescription describe(const abi::ConvolutionCall& call, TensorDescription x,
                              const TensorDescription& w, TensorDescription y) {
  using Kind = PrimitiveDescription::Kind;
  const bool channels_last = is_channels_last(x) || is_channels_last(y);
  name_layout(x, channels_last);
  name_layout(y, channels_last);
  PrimitiveDescription d{.kind = call.transposed ? Kind::deconvolution : Kind::convolution,
                         .source = std::move(x),
                         .weights = describe_weights(w, call.groups, call.transposed),
                         .destination = std::move(y),
                         .pack_weights = true,
                         .stride = call.stride};
  const std::size_t spatial = d.source.sizes.size() - 2;
  for (std::size_t i = 0; i < spatial; ++i) {
    const std::int64_t dilation = i < call.dilation.size() ? call.dilation[i] : 1;
    const std::int64_t stride = call.stride[i];
    const std::int64_t low = i < call.padding.size() ? call.padding[i] : 0;
    const std::int64_t reach = dilation * (w.sizes[i + 2] - 1) + 1;
    const std::int64_t input = d.source.sizes[i + 2];
    const std::int64_t output = d.destination.sizes[i + 2];
    // What the far side is padded by follows from the sizes: input rows past the last window are
    // negative padding; output_padding of a transpose is less padding there.
    d.dilation.push_back(dilation - 1);
    d.padding_low.push_back(low);
    d.padding_high.push_back(call.transposed ? (input - 1) * stride + reach - output - low
                                             : (output - 1) * stride + reach - input - low);
  }
  return d;
}

// x, gradient of the result -> gradient of the weights.
PrimitiveDescription describe_gradient(const abi::ConvolutionCall& call, TensorDescription x,
                                       TensorDescription gradient, const TensorDescription& dw) {
  PrimitiveDescription d = describe(call, std::move(x), dw, std::move(gradient));
  d.kind = PrimitiveDescription::Kind::convolution_weights;
  d.pack_weights = false;
  // x, dw, gradient -> gradient, x, dw
  std::swap(d.source, d.destination);
  std::swap(d.weights, d.destination);
  return d;
}

bool is_all(const std::vector<std::int64_t>& list, std::int64_t value) {
  return std::all_of(list.begin(), list.end(), [&](std::int64_t v) { return v == value; });
}

// The images as a matrix [pixels, channels], if their strides allow it.
std::optional<TensorDescription> as_matrix(TensorDescription t) {
  name_layout(t, true);
  if (t.strides[1] != 1) return std::nullopt;
  std::int64_t pixels = t.sizes[0];
  for (std::size_t d = 2; d < t.sizes.size(); ++d) pixels *= t.sizes[d];
  const std::int64_t step = t.sizes.size() > 2 ? t.strides.back() : t.strides[0];
  if (step != t.sizes[1] || t.strides[0] * t.sizes[0] != pixels * t.sizes[1]) return std::nullopt;
  return TensorDescription{t.dtype, {pixels, t.sizes[1]}, {t.sizes[1], 1}};
}

TensorDescription transposed(TensorDescription matrix) {
  std::swap(matrix.sizes[0], matrix.sizes[1]);
  std::swap(matrix.strides[0], matrix.strides[1]);
  return matrix;
}

// A 1x1 convolution, or a gradient of one, as a GEMM, which reads weights without packing
// them. nullopt for other convolutions.
std::optional<PrimitiveDescription> as_gemm(const abi::ConvolutionCall& call,
                                            const TensorDescription& x, const TensorDescription& w,
                                            const TensorDescription& y) {
  const TensorDescription& window = call.weight_gradient ? y : w;
  if (call.groups != 1 || call.has_bias || !call.post_ops.empty() || !is_all(call.stride, 1) ||
      !is_all(call.padding, 0) || !is_all({window.sizes.begin() + 2, window.sizes.end()}, 1)) {
    return std::nullopt;
  }
  const TensorDescription taps{
      window.dtype, {window.sizes[0], window.sizes[1]}, {window.strides[0], window.strides[1]}};
  const auto from = as_matrix(x), to = as_matrix(call.weight_gradient ? w : y);
  if (!from || !to || std::min(taps.strides[0], taps.strides[1]) != 1) return std::nullopt;
  PrimitiveDescription d{.kind = PrimitiveDescription::Kind::matmul};
  if (call.weight_gradient) {
    if (taps.strides[1] != 1) return std::nullopt;
    d.source = transposed(*to);
    d.weights = *from;
    d.destination = taps;
  } else {
    d.source = *from;
    d.weights = call.transposed ? taps : transposed(taps);
    d.destination = *to;
  }
  return d;
}

void check(const abi::ConvolutionCall& call, const TensorDescription& x, const TensorDescription& w,
           const TensorDescription& y) {
  const std::size_t rank = x.sizes.size();
  INKLE_CHECK(rank >= 3 && rank <= 5 && w.sizes.size() == rank && y.sizes.size() == rank &&
                  call.stride.size() == rank - 2,
              "convolution of ranks {}, {}, {}", rank, w.sizes.size(), y.sizes.size());
  INKLE_CHECK(call.groups >= 1 && w.sizes[0] % call.groups == 0, "{} groups for {} channels",
              call.groups, w.sizes[0]);
}

// oneDNN 2.6.3's im2col GEMM convolution reads the operands of post-ops from the wrong channel
// when there are several groups.
bool misplaces_operands(const Primitive& primitive, std::int64_t groups) {
  return groups > 1 && primitive.implementation().find("gemm") != std::string::npos;
}

// Post-ops from the first one with an operand on run after the primitive.
void keep_post_ops_without_operands(std::vector<PostOpDescription>& fused, CompiledCall& call) {
  const auto first = std::find_if(fused.begin(), fused.end(), [](const PostOpDescription& p) {
    return !p.operand.sizes.empty();
  });
  call.rest.insert(call.rest.begin(), first, fused.end());
  call.rest_operand = static_cast<std::size_t>(Role::first_post_op);
  fused.erase(first, fused.end());
}

CompiledCall compile_gradient(const abi::ConvolutionCall& call,
                              std::span<const std::int64_t> slots) {
  const TensorDescription x = resolve(call.x, slots), gradient = resolve(call.w, slots);
  CompiledCall result{.destination = resolve(call.y, slots), .channel = 1};
  check(call, x, result.destination, gradient);
  INKLE_CHECK(!call.transposed && !call.has_bias && call.post_ops.empty(),
              "a gradient of weights with more than that");
  result.is_empty = has_no_elements(result.destination);
  result.is_fill = !result.is_empty && (has_no_elements(x) || has_no_elements(gradient));
  if (result.is_empty || result.is_fill) return result;
  const auto gemm = as_gemm(call, x, gradient, result.destination);
  make_primitives(gemm ? *gemm : describe_gradient(call, x, gradient, result.destination), result);
  return result;
}

}  // namespace

CompiledCall compile(const abi::ConvolutionCall& call, std::span<const std::int64_t> slots,
                     bool stable_weights) {
  if (call.weight_gradient) return compile_gradient(call, slots);
  const TensorDescription x = resolve(call.x, slots);
  const TensorDescription w = resolve(call.w, slots);
  CompiledCall result{.destination = resolve(call.y, slots), .channel = 1};
  check(call, x, w, result.destination);
  result.weight_span = span_bytes(w);
  if (call.has_bias) result.bias = resolve_bias(call.bias, slots);
  auto post_ops = resolve(call.post_ops, result.destination, slots);
  if (has_no_elements(result.destination)) {
    result.is_empty = true;
    return result;
  }
  if (has_no_elements(x) || has_no_elements(w)) {
    result.is_fill = true;
    result.rest = std::move(post_ops);
    result.rest_operand = static_cast<std::size_t>(Role::first_post_op);
    return result;
  }
  // Weights that stay are packed for a convolution once; others are not worth it.
  const auto gemm = stable_weights ? std::nullopt : as_gemm(call, x, w, result.destination);
  if (gemm) {
    make_primitives(*gemm, result);
    return result;
  }
  PrimitiveDescription d = describe(call, x, w, result.destination);
  result.destination = d.destination;  // with the layout named, for the post-ops to match
  d.bias = result.bias;
  split_post_ops(std::move(post_ops), result, d.post_ops);
  result.source_span = span_bytes(x);
  result.terms = 1;  // one input channel of the group for one output, at every tap
  for (std::size_t i = 1; i < w.sizes.size(); ++i) result.terms *= w.sizes[i];
  if (call.transposed) result.terms = result.terms / w.sizes[1] * (w.sizes[0] / call.groups);
  make_primitives(d, result);
  if (misplaces_operands(*result.primitive, call.groups)) {
    keep_post_ops_without_operands(d.post_ops, result);
    make_primitives(std::move(d), result);
  }
  return result;
}

bool can_run(const abi::ConvolutionCall& call, bool with_bf16) {
  return dtype_objection(call.x, call.w, call.y, call.has_bias ? &call.bias : nullptr,
                         call.post_ops, with_bf16)
      .empty();
}

}  // namespace inkle::runtime::cpu
