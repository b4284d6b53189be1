// The steps of a call that are not generated kernels, and the results of the call.
#include <algorithm>
#include <array>
#include <bit>

#include "base/error.h"
#include "runtime/common/arguments.h"
#include "runtime/cuda/convolution.h"
#include "runtime/cuda/frame.h"

namespace inkle::runtime::cuda {
namespace {

using abi::BufferDecl;
using abi::PlanBuffer;
using common::HostTensor;
using Kind = BufferDecl::Kind;

// Kernels read what they can in accesses of so many bytes; a view that eager returns may start
// anywhere.
constexpr std::int32_t kAssumedAlignment = 16;

// The largest power of two, 256 at most, that all addresses are multiples of.
std::int32_t alignment_of(const GemmPointers& p) {
  const auto number = [](const void* at) { return reinterpret_cast<std::uintptr_t>(at); };
  const std::uintptr_t all =
      256 | number(p.a) | number(p.b) | number(p.c) | number(p.bias) | number(p.d);
  return 1 << std::countr_zero(all);
}

template <class T>
T* advance(T* p, std::int64_t bytes) {
  using Byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
  return static_cast<Byte*>(p) + bytes;
}

}  // namespace

void Frame::run_matmul(std::size_t number) {
  const auto& call = std::get<abi::MatmulCall>(*executable_.steps_[number].call);
  State& state = states_[number];
  const GemmPlan& plan = *state.gemm_plan;
  if (plan.is_empty) return;
  GemmPointers p;
  p.d = advance(on_device(call.c.buffer), plan.d);
  if (plan.is_zero) {
    const abi::TensorView c = device_part(call.c);
    std::int64_t last = 0;
    for (std::int32_t d = 0; d < c.rank; ++d) last += (c.sizes[d] - 1) * c.strides[d];
    std::int64_t elements = 1;
    for (std::int32_t d = 0; d < c.rank; ++d) elements *= c.sizes[d];
    if (last + 1 != elements) unsupported("a matrix product with K = 0 into a part of a tensor");
    device_.zero(p.d, elements * abi::size_of(c.dtype), stream_);
    return;
  }
  const void* first = on_device(call.a.buffer);
  const void* second = on_device(call.b.buffer);
  if (plan.swapped) std::swap(first, second);
  p.a = advance(first, plan.a);
  p.b = advance(second, plan.b);
  if (call.has_bias) p.bias = advance(on_device(call.bias.buffer), plan.bias);
  if (const abi::Operand* residual = residual_of(call)) {
    p.c = advance(on_device(residual->buffer), plan.c);
  }
  constexpr std::int32_t kCopyAlignment = 16;
  if (state.padded_rows > 0 && alignment_of({.d = p.d}) >= kCopyAlignment) {
    run_padded(state, p);
    return;
  }
  const std::int32_t alignment = std::min(alignment_of(p), plan.shape.alignment);
  if (!state.gemm || alignment < state.gemm_alignment) {
    GemmShape shape = plan.shape;
    shape.alignment = alignment;
    state.gemm = device_.gemms().find(shape, p, workspace_, stream_);
    state.gemm_alignment = alignment;
  }
  if (plan.loops.empty()) {
    state.gemm->run(p, workspace_, stream_);
    return;
  }
  std::vector<std::int64_t> position(plan.loops.size(), 0);
  const GemmPointers start = p;
  while (true) {
    state.gemm->run(p, workspace_, stream_);
    std::size_t d = plan.loops.size();
    while (d > 0 && ++position[d - 1] == plan.loops[d - 1].extent) position[--d] = 0;
    if (d == 0) break;
    p = start;
    for (std::size_t l = 0; l < plan.loops.size(); ++l) {
      const GemmPlan::Loop& loop = plan.loops[l];
      p.a = advance(p.a, position[l] * loop.a);
      p.b = advance(p.b, position[l] * loop.b);
      if (p.c != nullptr) p.c = advance(p.c, position[l] * loop.c);
      p.d = advance(p.d, position[l] * loop.d);
    }
  }
}

// Computes blocks of rows in memory with an aligned row stride, then copies each to the output. The
// library's fast algorithms also need an aligned number of columns: the remainder comes last.
void Frame::run_padded(const State& state, const GemmPointers& whole) {
  const GemmShape& all = state.gemm_plan->shape;
  void* const part = workspace_;
  const std::int64_t width = abi::size_of(all.out);
  const auto run = [&](GemmShape shape, const GemmPointers& p) {
    shape.alignment = alignment_of(p);
    shape.has_workspace = p.d != part;
    device_.gemms().find(shape, p, workspace_, stream_)->run(p, workspace_, stream_);
  };
  GemmShape shape = all;
  shape.d_row = padded_row_bytes(*state.gemm_plan) / width;
  shape.n = all.n / (kPaddedRowAlignment / width) * (kPaddedRowAlignment / width);
  GemmPointers p = whole;
  p.d = part;
  void* to = whole.d;
  for (std::int64_t row = 0; row < all.m; row += state.padded_rows) {
    shape.m = std::min(state.padded_rows, all.m - row);
    run(shape, p);
    device_.copy_rows(to, part, shape.m, all.n, shape.d_row, stream_);
    p.a = advance(p.a, shape.m * shape.a_row * abi::size_of(shape.in));
    to = advance(to, shape.m * all.n * width);
  }
  if (shape.n == all.n) return;
  GemmShape rest = all;
  rest.n = all.n - shape.n;
  p = whole;
  p.b = advance(p.b, shape.n * all.b_column * abi::size_of(all.in));
  if (p.bias != nullptr) p.bias = advance(p.bias, shape.n * width);
  p.d = advance(p.d, shape.n * width);
  run(rest, p);
}

void Frame::run_convolution(std::size_t number) {
  if (run_convolution_here(number)) return;
  const auto& call = std::get<abi::ConvolutionCall>(*executable_.steps_[number].call);
  ConvolutionArguments a;
  a.call = &call;
  a.x = device_part(call.x);
  a.w = device_part(call.w);
  a.y = device_part(call.y);
  if (call.has_bias) a.bias = device_part(call.bias);
  for (const abi::PostOp& p : call.post_ops) {
    if (p.kind == abi::PostOpKind::add) a.residual = device_part(p.operand);
    if (p.kind == abi::PostOpKind::relu) a.relu = true;
  }
  take_result(call.y.buffer, a.y, host_->convolution(a));
}

// Runs the convolution by the device's own library; false if that does not support it.
bool Frame::run_convolution_here(std::size_t number) {
  State& state = states_[number];
  if (!state.convolution_shape) return false;
  const auto& call = std::get<abi::ConvolutionCall>(*executable_.steps_[number].call);
  if (plan_.buffers[call.y.buffer].kind == Kind::external) {
    if (host_->has_convolutions()) return false;
    make_output(call.y.buffer);  // which the host frees like one of its own
  }
  const auto at = [&](const abi::Operand& o) {
    return advance(on_device(o.buffer), slots_[o.offset] * abi::size_of(o.dtype));
  };
  const ConvolutionRoles roles = roles_of(call);
  ConvolutionPointers p;
  p.x = at(*roles.x);
  p.w = at(*roles.w);
  p.y = at(*roles.y);
  if (call.has_bias) p.bias = at(call.bias);
  for (const abi::PostOp& op : call.post_ops) {
    if (op.kind == abi::PostOpKind::add) p.residual = at(op.operand);
  }
  const std::int32_t alignment = std::min(alignment_of({p.x, p.w, p.bias, p.residual, p.y}),
                                          state.convolution_shape->alignment);
  if (!state.convolution || alignment < state.convolution_alignment) {
    ConvolutionShape shape = *state.convolution_shape;
    shape.alignment = alignment;
    state.convolution = device_.convolutions()->find(shape, p, workspace_, stream_);
    state.convolution_alignment = alignment;
    if (!state.convolution) {
      state.convolution_shape.reset();
      return false;
    }
  }
  state.convolution->run(p, workspace_, stream_);
  return true;
}

void Frame::run_attention(std::size_t number) {
  const auto& call = std::get<abi::AttentionCall>(*executable_.steps_[number].call);
  AttentionArguments a;
  a.q = device_part(call.q);
  a.k = device_part(call.k);
  a.v = device_part(call.v);
  a.out = device_part(call.out);
  if (call.has_mask) a.mask = device_part(call.mask);
  a.scale = call.scale;
  a.is_causal = call.is_causal;
  take_result(call.out.buffer, a.out, host_->attention(a));
}

// The host's tensor becomes the buffer if its layout is as planned, else it is copied.
void Frame::take_result(PlanBuffer buffer, const abi::TensorView& expected,
                        const std::optional<HostTensor>& result) {
  if (!result) return;
  if (!common::same_sizes(result->view, expected)) {
    throw InternalError("the host returned a tensor of another size than was asked for");
  }
  if (plan_.buffers[buffer].kind == Kind::external) {
    if (common::same_strides(result->view, expected)) {
      buffers_[buffer] = result->view.data;
      handles_[buffer] = result->handle;
      return;
    }
    const auto rank = static_cast<std::size_t>(expected.rank);
    const HostTensor made =
        host_->make_output(expected.dtype, {expected.sizes, rank}, {expected.strides, rank});
    host_->copy(result->view, made.view);
    buffers_[buffer] = made.view.data;
    handles_[buffer] = made.handle;
  } else {
    host_->copy(result->view, expected);
  }
  host_->release(result->handle);
}

void Frame::run_copy(std::size_t number) {
  const abi::CopyStep& copy = *executable_.steps_[number].copy;
  host_->copy(view_of(copy.from), view_of(copy.to));
}

void* Frame::original_of(const void* data) const {
  const auto clone = std::ranges::find(clones_, data, &Clone::copy);
  return clone == clones_.end() ? nullptr : clone->original;
}

void Frame::refresh(const void* copy, common::Refreshed which) {
  for (const Clone& c : clones_) {
    if (c.copy != copy) continue;
    const bool is_argument = which == common::Refreshed::argument;
    device_.copy(is_argument ? c.original : c.copy, is_argument ? c.copy : c.original, c.bytes,
                 stream_);
  }
}

// The plan relies on the layout it was compiled for: other sizes send the call to eager; other
// strides, or an address that kernels need aligned and is not, cost a copy. A tensor that is only
// returned is not copied: it may be a view of an argument. Other ops in eager get the tensor at its
// own address. Where FX states another device than the op has, only they may have it.
void Frame::adopt(PlanBuffer buffer, const HostTensor& result, const std::string& name) {
  const abi::TensorView expected = view_of(buffer);
  if (!common::same_sizes(result.view, expected)) {
    unsupported("{} returned a tensor of another dtype or size than the plan {} foresaw", name,
                plan_.name);
  }
  if (result.view.device.kind != plan_.buffers[buffer].device.kind) {
    if (!executable_.is_left_to_host(buffer)) {
      unsupported("{} returned a tensor on another device than the plan {} foresaw", name,
                  plan_.name);
    }
    buffers_[buffer] = result.view.data;
    handles_[buffer] = result.handle;
    return;
  }
  for (Upload& u : uploads_) {
    if (u.buffer == buffer) u.is_done = false;
  }
  const bool is_on_cpu = result.view.device.kind == abi::DeviceKind::cpu;
  if (common::same_strides(result.view, expected) &&
      (is_on_cpu || !executable_.is_of_device_[buffer] ||
       common::is_aligned(result.view.data, kAssumedAlignment))) {
    buffers_[buffer] = result.view.data;
    handles_[buffer] = result.handle;
    return;
  }
  if (is_on_cpu) {
    unsupported("{} returned a tensor on the CPU with other strides than foreseen", name);
  }
  if (common::same_strides(result.view, expected) && executable_.is_of_host_[buffer] &&
      !executable_.is_shared_[buffer]) {
    buffers_[buffer] = aligned_copy(result.view.data, slots_[plan_.buffers[buffer].bytes], false);
    handles_[buffer] = result.handle;
    return;
  }
  const auto rank = static_cast<std::size_t>(expected.rank);
  const HostTensor made =
      host_->make_output(expected.dtype, {expected.sizes, rank}, {expected.strides, rank});
  // Elements with the same address (stride 0) are copied once.
  abi::TensorView from = result.view, to = made.view;
  std::vector<std::int64_t> sizes(expected.sizes, expected.sizes + rank);
  for (std::size_t d = 0; d < rank; ++d) {
    if (expected.strides[d] == 0) sizes[d] = std::min<std::int64_t>(sizes[d], 1);
  }
  from.sizes = to.sizes = sizes.data();
  host_->copy(from, to);
  host_->release(result.handle);
  buffers_[buffer] = made.view.data;
  handles_[buffer] = made.handle;
}

void Frame::copy_constant(PlanBuffer root, const abi::TensorView& to, std::int64_t bytes) {
  if (is_on_host(plan_.buffers[root])) {
    unsupported("a CUDA program returns a CPU constant");
  }
  device_.copy(to.data, buffers_[root], bytes, stream_);
}

}  // namespace inkle::runtime::cuda
