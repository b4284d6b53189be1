#include "runtime/cpu/post_ops.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/threads.h"

namespace inkle::runtime::cpu {
namespace {

using abi::DType;
using abi::PostOpKind;

constexpr std::int64_t kGrain = 4096;  // elements worth a thread: tens of microseconds

float load(DType dtype, const void* data, std::int64_t at) {
  if (dtype == DType::f32) return static_cast<const float*>(data)[at];
  const std::uint32_t bits = static_cast<const std::uint16_t*>(data)[at];
  return std::bit_cast<float>(bits << 16);
}

void store(DType dtype, void* data, std::int64_t at, float value) {
  if (dtype == DType::f32) {
    static_cast<float*>(data)[at] = value;
    return;
  }
  const auto bits = std::bit_cast<std::uint32_t>(value);
  // Round to nearest, ties to even; NaN stays NaN.
  const std::uint32_t rounded =
      std::isnan(value) ? (bits >> 16) | 0x40U : (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  static_cast<std::uint16_t*>(data)[at] = static_cast<std::uint16_t>(rounded);
}

float clamp_keeping_nan(float x, float low, float high) {
  if (std::isnan(x)) return x;
  return std::fmin(std::fmax(x, low), high);
}

std::int64_t element_count(const TensorDescription& t) {
  std::int64_t count = 1;
  for (const std::int64_t s : t.sizes) count *= s;
  return count;
}

// Offset of the element with row-major number `index` in `sizes`, in the layout of `t`, whose
// dimensions of size 1 are broadcast.
std::int64_t offset_of(std::int64_t index, const std::vector<std::int64_t>& sizes,
                       const TensorDescription& t) {
  std::int64_t offset = 0;
  for (std::size_t d = sizes.size(); d-- > 0;) {
    if (t.sizes[d] != 1) offset += index % sizes[d] * t.strides[d];
    index /= sizes[d];
  }
  return offset;
}

}  // namespace

float apply(const PostOpDescription& op, float x, float operand) {
  const auto a = static_cast<float>(op.alpha);
  const auto b = static_cast<float>(op.beta);
  switch (op.kind) {
    case PostOpKind::relu:
      return x < 0 ? 0.0F : x;
    case PostOpKind::gelu_erf:
      return 0.5F * x * (1 + std::erf(x * 0.70710678F));
    case PostOpKind::gelu_tanh:
      return 0.5F * x * (1 + std::tanh(0.79788456F * (x + 0.044715F * x * x * x)));
    case PostOpKind::tanh:
      return std::tanh(x);
    case PostOpKind::logistic:
      return 1 / (1 + std::exp(-x));
    case PostOpKind::swish:
      return x / (1 + std::exp(-a * x));
    case PostOpKind::hardswish:
      return x * clamp_keeping_nan(x + 3, 0, 6) / 6;
    case PostOpKind::hardsigmoid:
      return clamp_keeping_nan(x / 6 + 0.5F, 0, 1);
    case PostOpKind::elu:
      return x > 0 ? x : a * std::expm1(x);
    case PostOpKind::leaky_relu:
      return x > 0 ? x : a * x;
    case PostOpKind::clip:
      return clamp_keeping_nan(x, a, b);
    case PostOpKind::linear:
      return a * x + b;
    case PostOpKind::abs:
      return std::fabs(x);
    case PostOpKind::square:
      return x * x;
    case PostOpKind::sqrt:
      return std::sqrt(x);
    case PostOpKind::exp:
      return std::exp(x);
    case PostOpKind::add:
      return x + operand;
    case PostOpKind::mul:
      return x * operand;
  }
  return x;
}

void apply_post_ops(std::span<const PostOpDescription> post_ops,
                    const TensorDescription& destination, void* data,
                    std::span<void* const> operands) {
  parallel_for(0, element_count(destination), kGrain, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) {
      const std::int64_t at = offset_of(i, destination.sizes, destination);
      float x = load(destination.dtype, data, at);
      std::size_t operand = 0;
      for (const PostOpDescription& op : post_ops) {
        float other = 0;
        if (op.kind == PostOpKind::add || op.kind == PostOpKind::mul) {
          other = load(op.operand.dtype, operands[operand++],
                       offset_of(i, destination.sizes, op.operand));
        }
        x = apply(op, x, other);
      }
      store(destination.dtype, data, at, x);
    }
  });
}

void fill_bias(const TensorDescription& destination, void* data, std::size_t channel,
               const TensorDescription* bias, const void* bias_data) {
  TensorDescription spread{.dtype = DType::f32,
                           .sizes = std::vector<std::int64_t>(destination.sizes.size(), 1),
                           .strides = std::vector<std::int64_t>(destination.sizes.size(), 0)};
  if (bias != nullptr) {
    spread.dtype = bias->dtype;
    spread.sizes[channel] = bias->sizes[0];
    spread.strides[channel] = bias->strides[0];
  }
  parallel_for(0, element_count(destination), kGrain, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) {
      const float value =
          bias == nullptr ? 0.0F
                          : load(spread.dtype, bias_data, offset_of(i, destination.sizes, spread));
      store(destination.dtype, data, offset_of(i, destination.sizes, destination), value);
    }
  });
}

}  // namespace inkle::runtime::cpu
