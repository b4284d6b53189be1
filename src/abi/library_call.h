// Calls of a library inside a plan: contractions with their epilogues. A closed set; operands are
// strided views of plan buffers, all integers are slots of the frame (abi/plan.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "abi/dtype.h"

namespace inkle::abi {

using Slot = std::uint32_t;        // index of a 64-bit integer in the frame
using PlanBuffer = std::uint32_t;  // index into Plan::buffers

struct Operand {
  PlanBuffer buffer = 0;
  DType dtype = DType::f32;
  Slot offset = 0;  // elements from the buffer's first one
  std::vector<Slot> sizes;
  std::vector<Slot> strides;  // elements; a broadcast dimension has stride 0
};

enum class PostOpKind : std::uint8_t {
  relu,  // max(x, 0), NaN kept
  gelu_erf,
  gelu_tanh,
  tanh,
  logistic,
  swish,        // x * logistic(alpha * x)
  hardswish,    // x * min(max(x + 3, 0), 6) / 6
  hardsigmoid,  // min(max(x / 6 + 0.5, 0), 1)
  elu,          // x > 0 ? x : alpha * (exp(x) - 1)
  leaky_relu,   // x > 0 ? x : alpha * x
  clip,         // min(max(x, alpha), beta)
  linear,       // alpha * x + beta
  abs,
  square,
  sqrt,
  exp,
  add,
  mul,  // with `operand`, broadcast to the result
};
[[nodiscard]] std::string_view name_of(PostOpKind kind);

struct PostOp {
  PostOpKind kind = PostOpKind::relu;
  double alpha = 0;
  double beta = 0;
  Operand operand;  // add, mul only
};

// c[b..., m, n] = post_ops(sum_k a[b..., m, k] * b[b..., k, n] + bias[n]), accumulated in f32 (f64
// for f64). a, b and c have equal rank >= 2; batch dimensions of a and b may have stride 0.
struct MatmulCall {
  Operand a, b, c;
  bool has_bias = false;
  Operand bias;              // [n]
  bool b_is_weight = false;  // b comes from a parameter: packing it may be worth it
  std::vector<PostOp> post_ops;
};

// 1-D to 3-D convolution or its transpose; x [n, c, spatial...], w [o, c/groups, kernel...] (or
// [c, o/groups, kernel...] when transposed), y [n, o, spatial...]; layouts are in the strides. As a
// weight gradient: x [n, c, spatial...], w the gradient [n, o, spatial...] of the result of a plain
// convolution of x, y the gradient [o, c/groups, kernel...] of its weights; no bias, no post-ops.
struct ConvolutionCall {
  Operand x, w, y;
  bool has_bias = false;
  Operand bias;  // [o]
  std::vector<std::int64_t> stride, padding, dilation, output_padding;
  std::int64_t groups = 1;
  bool transposed = false;
  bool weight_gradient = false;
  bool w_is_weight = false;
  std::vector<PostOp> post_ops;
};

// out = softmax(scale * q k^T + mask) v over [batch, head, row, feature], as torch's
// scaled_dot_product_attention: k and v may have fewer heads than q, by a factor; a boolean mask
// keeps where it is true; is_causal: row i sees columns up to i.
struct AttentionCall {
  Operand q, k, v, out;
  bool has_mask = false;
  Operand mask;  // [batch, head, row, column], steps of 0 where it is repeated
  double scale = 1;
  bool is_causal = false;
};

using LibraryCall = std::variant<MatmulCall, ConvolutionCall, AttentionCall>;

// Calls function(operand) for every operand, the result included; of a LibraryCall, const or not.
template <class Call, class Function>
void for_each_operand(Call& call, Function function) {
  const auto visit_post_ops = [&](auto& post_ops) {
    for (auto& p : post_ops) {
      if (p.kind == PostOpKind::add || p.kind == PostOpKind::mul) function(p.operand);
    }
  };
  if (auto* m = std::get_if<MatmulCall>(&call)) {
    function(m->a);
    function(m->b);
    function(m->c);
    if (m->has_bias) function(m->bias);
    visit_post_ops(m->post_ops);
  } else if (auto* c = std::get_if<ConvolutionCall>(&call)) {
    function(c->x);
    function(c->w);
    function(c->y);
    if (c->has_bias) function(c->bias);
    visit_post_ops(c->post_ops);
  } else {
    auto& a = std::get<AttentionCall>(call);
    function(a.q);
    function(a.k);
    function(a.v);
    function(a.out);
    if (a.has_mask) function(a.mask);
  }
}

// What the call writes.
[[nodiscard]] inline const Operand& result_of(const LibraryCall& call) {
  if (const auto* m = std::get_if<MatmulCall>(&call)) return m->c;
  if (const auto* c = std::get_if<ConvolutionCall>(&call)) return c->y;
  return std::get<AttentionCall>(call).out;
}

}  // namespace inkle::abi
