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
// [c, o/groups, kernel...] when transposed), y [n, o, spatial...]; layouts are in the strides.
struct ConvolutionCall {
  Operand x, w, y;
  bool has_bias = false;
  Operand bias;  // [o]
  std::vector<std::int64_t> stride, padding, dilation, output_padding;
  std::int64_t groups = 1;
  bool transposed = false;
  bool w_is_weight = false;
  std::vector<PostOp> post_ops;
};

using LibraryCall = std::variant<MatmulCall, ConvolutionCall>;

}  // namespace inkle::abi
