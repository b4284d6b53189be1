#include "runtime/cpu/library_shapes.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace inkle::runtime::cpu {
namespace {

using abi::DType;
using abi::PostOpKind;

bool has_operand(PostOpKind kind) { return kind == PostOpKind::add || kind == PostOpKind::mul; }

bool is_native(const PostOpDescription& p) {
  return supported(abi::PostOp{.kind = p.kind, .alpha = p.alpha, .beta = p.beta, .operand = {}});
}

// oneDNN 2.6's products scale and shift in all linear post-ops by the first one's numbers; no two
// of another kind are trusted either.
bool takes_anothers_numbers(const PostOpDescription& op,
                            const std::vector<PostOpDescription>& fused) {
  if (has_operand(op.kind)) return false;
  return std::any_of(fused.begin(), fused.end(), [&](const PostOpDescription& f) {
    return f.kind == op.kind && (f.alpha != op.alpha || f.beta != op.beta);
  });
}

}  // namespace

TensorDescription resolve(const abi::Operand& operand, std::span<const std::int64_t> slots) {
  TensorDescription t{.dtype = operand.dtype};
  for (const abi::Slot s : operand.sizes) t.sizes.push_back(slots[s]);
  for (const abi::Slot s : operand.strides) t.strides.push_back(slots[s]);
  return t;
}

bool has_no_elements(const TensorDescription& t) {
  return std::find(t.sizes.begin(), t.sizes.end(), 0) != t.sizes.end();
}

std::int64_t span_bytes(const TensorDescription& t) {
  std::int64_t last = 0;
  for (std::size_t d = 0; d < t.sizes.size(); ++d) last += (t.sizes[d] - 1) * t.strides[d];
  return (last + 1) * abi::size_of(t.dtype);
}

std::vector<PostOpDescription> resolve(std::span<const abi::PostOp> post_ops,
                                       const TensorDescription& destination,
                                       std::span<const std::int64_t> slots) {
  std::vector<PostOpDescription> result;
  for (const abi::PostOp& p : post_ops) {
    PostOpDescription d{.kind = p.kind, .alpha = p.alpha, .beta = p.beta};
    if (has_operand(p.kind)) {
      d.operand = resolve(p.operand, slots);
      const std::size_t rank = destination.sizes.size();
      INKLE_CHECK(d.operand.sizes.size() <= rank,
                  "post-op operand of rank {} on a result of rank {}", d.operand.sizes.size(),
                  rank);
      d.operand.sizes.insert(d.operand.sizes.begin(), rank - d.operand.sizes.size(), 1);
      d.operand.strides.insert(d.operand.strides.begin(), rank - d.operand.strides.size(), 0);
      for (std::size_t i = 0; i < rank; ++i) {
        if (d.operand.strides[i] == 0) d.operand.sizes[i] = 1;
      }
    }
    result.push_back(std::move(d));
  }
  return result;
}

bool fits(PostOpDescription& op, const TensorDescription& destination, std::size_t channel) {
  if (!has_operand(op.kind)) return is_native(op);
  if (op.operand.dtype != DType::f32 && op.operand.dtype != destination.dtype) return false;
  bool is_full = true;
  bool is_channel = true;
  bool is_scalar = true;
  for (std::size_t d = 0; d < destination.sizes.size(); ++d) {
    if (destination.sizes[d] == 1) continue;
    const bool is_broadcast = op.operand.sizes[d] == 1;
    if (is_broadcast || op.operand.strides[d] != destination.strides[d]) is_full = false;
    if (is_broadcast == (d == channel)) is_channel = false;
    if (d == channel && !is_broadcast && op.operand.strides[d] != 1) is_channel = false;
    if (!is_broadcast) is_scalar = false;
  }
  if (is_full && !is_scalar) {
    op.operand.sizes = destination.sizes;
    op.operand.strides = destination.strides;
    return true;
  }
  if (!is_channel && !is_scalar) return false;
  for (std::size_t d = 0; d < destination.sizes.size(); ++d) {
    const bool counts = !is_scalar && d == channel;
    op.operand.sizes[d] = counts ? destination.sizes[d] : 1;
    op.operand.strides[d] = d < channel && !is_scalar ? destination.sizes[channel] : 1;
  }
  return true;
}

std::optional<TensorDescription> resolve_bias(const abi::Operand& bias,
                                              std::span<const std::int64_t> slots) {
  TensorDescription t = resolve(bias, slots);
  INKLE_CHECK(t.sizes.size() == 1, "bias of rank {}", t.sizes.size());
  if (t.sizes[0] != 1 && t.strides[0] != 1) unsupported("a bias with stride {}", t.strides[0]);
  t.strides[0] = 1;
  return t;
}

void split_post_ops(std::vector<PostOpDescription> all, CompiledCall& call,
                    std::vector<PostOpDescription>& fused) {
  call.rest_operand = static_cast<std::size_t>(Role::first_post_op);
  for (PostOpDescription& p : all) {
    if (call.rest.empty() && fits(p, call.destination, call.channel) &&
        !takes_anothers_numbers(p, fused)) {
      if (has_operand(p.kind)) ++call.rest_operand;
      fused.push_back(std::move(p));
    } else {
      call.rest.push_back(std::move(p));
    }
  }
}

void make_primitives(PrimitiveDescription d, CompiledCall& call) {
  call.primitive = Primitive::make(d);
  call.fused = d.post_ops;
  call.quick = nullptr;
  call.operand_spans.clear();
  bool has_relu = false;
  bool is_f32 = d.source.dtype == DType::f32 && d.weights.dtype == DType::f32 &&
                (!d.bias || d.bias->dtype == DType::f32);
  for (PostOpDescription& p : d.post_ops) {
    has_relu |= p.kind == PostOpKind::relu;
    p.is_finite = true;
    if (!has_operand(p.kind)) continue;
    is_f32 &= p.operand.dtype == DType::f32;
    call.operand_spans.push_back(span_bytes(p.operand));
  }
  if (!has_relu || !is_f32 || !call.loops.empty()) return;
  call.quick = Primitive::make(d);
  if (call.quick->packed_layout() != call.primitive->packed_layout()) call.quick = nullptr;
}

std::string dtype_objection(const abi::Operand& source, const abi::Operand& weights,
                            const abi::Operand& destination, const abi::Operand* bias,
                            std::span<const abi::PostOp> post_ops, bool with_bf16) {
  const DType dtype = source.dtype;
  if (dtype != DType::f32 && dtype != DType::bf16) {
    return fmt::format("oneDNN does not compute in {} on CPUs", abi::name_of(dtype));
  }
  if (dtype == DType::bf16 && !with_bf16) return "bf16 needs AVX-512";
  const auto is_result = [&](DType d) { return d == dtype || d == DType::f32; };
  if (weights.dtype != dtype) return "operands of different dtypes";
  if (!is_result(destination.dtype)) return "result is neither f32 nor the operands' dtype";
  if (bias != nullptr && !is_result(bias->dtype)) return "bias of another dtype";
  for (const abi::PostOp& p : post_ops) {
    if (!supported(p)) return "a post-op whose oneDNN results differ from eager";
    if (has_operand(p.kind) && !is_result(p.operand.dtype))
      return "post-op operand of another dtype";
  }
  return {};
}

}  // namespace inkle::runtime::cpu
