#include "runtime/cuda/convolution.h"

#include <algorithm>

namespace inkle::runtime::cuda {
namespace {

using Dims = ConvolutionShape::Dims;
using Spatial = ConvolutionShape::Spatial;

// [batch, channel, spatial...] with ones in front of the spatial dimensions up to three.
Dims five(const std::vector<abi::Slot>& from, std::span<const std::int64_t> slots,
          std::int64_t filler) {
  Dims result{};
  result.fill(filler);
  const std::size_t missing = result.size() - from.size();
  for (std::size_t d = 0; d < from.size(); ++d) result[d < 2 ? d : d + missing] = slots[from[d]];
  return result;
}

// Steps along dimensions of one element mean nothing; the library wants those of a dense tensor.
Dims dense_where_free(const Dims& sizes, Dims strides) {
  const bool channels_last = strides[1] == 1 || sizes[1] == 1;
  constexpr std::array<std::size_t, 5> kLast = {1, 4, 3, 2, 0};
  constexpr std::array<std::size_t, 5> kFirst = {4, 3, 2, 1, 0};
  std::int64_t step = 1;
  for (const std::size_t d : channels_last ? kLast : kFirst) {
    if (sizes[d] == 1) strides[d] = step;
    step = std::max(step, strides[d] * sizes[d]);
  }
  return strides;
}

Spatial three(const std::vector<std::int64_t>& from, std::int64_t filler) {
  Spatial result{};
  result.fill(filler);
  std::copy(from.begin(), from.end(),
            result.begin() + static_cast<std::ptrdiff_t>(result.size() - from.size()));
  return result;
}

}  // namespace

ConvolutionRoles roles_of(const abi::ConvolutionCall& call) {
  if (call.weight_gradient) return {&call.x, &call.y, &call.w};
  if (call.transposed) return {&call.y, &call.w, &call.x};
  return {&call.x, &call.w, &call.y};
}

std::optional<ConvolutionShape> plan_convolution(const abi::ConvolutionCall& call,
                                                 std::span<const std::int64_t> slots,
                                                 bool takes_f32) {
  ConvolutionShape s;
  s.dtype = call.x.dtype;
  const std::size_t rank = call.x.sizes.size();
  const bool is_taken = abi::is_reduced_float(s.dtype) || (takes_f32 && s.dtype == abi::DType::f32);
  if (!is_taken || call.w.dtype != s.dtype || call.y.dtype != s.dtype || rank < 3 || rank > 5) {
    return std::nullopt;
  }
  s.is_volume = rank == 5;
  s.result = call.weight_gradient ? ConvolutionShape::Result::w
             : call.transposed    ? ConvolutionShape::Result::x
                                  : ConvolutionShape::Result::y;
  if (s.result != ConvolutionShape::Result::y && (call.has_bias || !call.post_ops.empty())) {
    return std::nullopt;
  }
  const ConvolutionRoles roles = roles_of(call);
  const abi::Operand &x = *roles.x, &w = *roles.w, &y = *roles.y;
  s.x = five(x.sizes, slots, 1);
  s.w = five(w.sizes, slots, 1);
  s.y = five(y.sizes, slots, 1);
  for (const Dims* d : {&s.x, &s.w, &s.y}) {
    if (std::any_of(d->begin(), d->end(), [](std::int64_t n) { return n <= 0; })) {
      return std::nullopt;
    }
  }
  s.x_strides = dense_where_free(s.x, five(x.strides, slots, 1));
  s.w_strides = dense_where_free(s.w, five(w.strides, slots, 1));
  s.y_strides = dense_where_free(s.y, five(y.strides, slots, 1));
  s.stride = three(call.stride, 1);
  s.padding = three(call.padding, 0);
  s.dilation = three(call.dilation, 1);
  std::int64_t all = 256 | slots[call.x.offset] | slots[call.w.offset] | slots[call.y.offset];
  s.has_bias = call.has_bias;
  if (s.has_bias) {
    const bool is_dense = call.bias.sizes.size() == 1 && slots[call.bias.strides[0]] == 1;
    if (call.bias.dtype != s.dtype || !is_dense) return std::nullopt;
    all |= slots[call.bias.offset];
  }
  for (const abi::PostOp& p : call.post_ops) {
    if (s.relu) return std::nullopt;
    if (p.kind == abi::PostOpKind::relu) {
      s.relu = true;
      continue;
    }
    if (p.kind != abi::PostOpKind::add || s.has_residual || p.operand.dtype != s.dtype ||
        p.operand.sizes.size() != rank || five(p.operand.sizes, slots, 1) != s.y) {
      return std::nullopt;
    }
    s.has_residual = true;
    s.residual_strides = dense_where_free(s.y, five(p.operand.strides, slots, 1));
    all |= slots[p.operand.offset];
  }
  const std::int64_t bytes = all * abi::size_of(s.dtype);
  s.alignment = static_cast<std::int32_t>(std::min<std::int64_t>(bytes & -bytes, 16));
  return s;
}

}  // namespace inkle::runtime::cuda
