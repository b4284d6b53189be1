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

std::string why_not(const abi::ConvolutionCall& call, bool takes_f32) {
  const abi::DType dtype = call.x.dtype;
  const std::size_t rank = call.x.sizes.size();
  const bool is_taken = abi::is_reduced_float(dtype) || (takes_f32 && dtype == abi::DType::f32);
  if (!is_taken || call.w.dtype != dtype || call.y.dtype != dtype) return "types";
  if (rank < 3 || rank > 5) return "number of dimensions";
  const bool is_plain = !call.weight_gradient && !call.transposed;
  if (!is_plain && call.has_bias) return "bias";
  if (!is_plain && !call.post_ops.empty()) return "post-ops";
  if (call.has_bias && call.bias.dtype != dtype) return "type of the bias";
  if (call.has_bias && call.bias.sizes.size() != 1) return "bias";
  bool has_residual = false, has_relu = false;
  for (const abi::PostOp& p : call.post_ops) {
    if (has_relu) return "order of the post-ops";
    if (p.kind == abi::PostOpKind::relu) {
      has_relu = true;
      continue;
    }
    if (p.kind != abi::PostOpKind::add) return std::string(abi::name_of(p.kind));
    if (has_residual) return "order of the post-ops";
    if (p.operand.dtype != dtype || p.operand.sizes.size() != rank) return "residual";
    has_residual = true;
  }
  return {};
}

std::optional<ConvolutionShape> plan_convolution(const abi::ConvolutionCall& call,
                                                 std::span<const std::int64_t> slots,
                                                 bool takes_f32) {
  if (!why_not(call, takes_f32).empty()) return std::nullopt;
  ConvolutionShape s;
  s.dtype = call.x.dtype;
  s.is_volume = call.x.sizes.size() == 5;
  s.result = call.weight_gradient ? ConvolutionShape::Result::w
             : call.transposed    ? ConvolutionShape::Result::x
                                  : ConvolutionShape::Result::y;
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
    if (slots[call.bias.strides[0]] != 1) return std::nullopt;
    all |= slots[call.bias.offset];
  }
  for (const abi::PostOp& p : call.post_ops) {
    if (p.kind == abi::PostOpKind::relu) {
      s.relu = true;
      continue;
    }
    if (five(p.operand.sizes, slots, 1) != s.y) return std::nullopt;
    s.has_residual = true;
    s.residual_strides = dense_where_free(s.y, five(p.operand.strides, slots, 1));
    all |= slots[p.operand.offset];
  }
  const std::int64_t bytes = all * abi::size_of(s.dtype);
  s.alignment = static_cast<std::int32_t>(std::min<std::int64_t>(bytes & -bytes, 16));
  return s;
}

}  // namespace inkle::runtime::cuda
