// One oneDNN primitive for fixed shapes, described without oneDNN's types. Made once a shape,
// executed by many threads at once, each through an Execution of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "abi/library_call.h"

namespace inkle::runtime::cpu {

struct TensorDescription {
  abi::DType dtype = abi::DType::f32;
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;  // elements
};

struct PostOpDescription {
  abi::PostOpKind kind = abi::PostOpKind::relu;
  double alpha = 0;
  double beta = 0;
  bool is_finite = false;     // relu: its input is no NaN, so that the quick form will do
  TensorDescription operand;  // add, mul: of the destination's rank, size 1 = broadcast
};

struct PrimitiveDescription {
  enum class Kind : std::uint8_t {
    matmul,         // source [b, m, k] or [m, k], weights [b, k, n] or [k, n]
    inner_product,  // source [m, k], weights [n, k]
    convolution,    // weights [g, o/g, c/g, spatial...], or without g
    deconvolution,  // the transpose; weights likewise
    // Source: the gradient of a convolution's result; weights: its images; destination: the
    // gradient of its weights, [g, o/g, c/g, spatial...], or without g.
    convolution_weights,
  };
  Kind kind = Kind::matmul;
  TensorDescription source, weights, destination;
  std::optional<TensorDescription> bias;  // [n] or [o]
  bool pack_weights = false;              // let oneDNN choose their layout
  std::vector<std::int64_t> stride, dilation, padding_low, padding_high;  // convolutions only
  std::vector<PostOpDescription> post_ops;
};

// Operands in the order that Execution::run takes them.
enum class Role : std::uint8_t { source, weights, destination, bias, first_post_op };

class Execution;

class Primitive : public std::enable_shared_from_this<Primitive> {
 public:
  // Throws Unsupported if oneDNN cannot do this on this machine, UserError if memory runs out.
  [[nodiscard]] static std::shared_ptr<const Primitive> make(const PrimitiveDescription& d);
  virtual ~Primitive() = default;

  [[nodiscard]] virtual const std::string& implementation() const = 0;
  // A slow reference loop of oneDNN's was all it had.
  [[nodiscard]] bool is_reference() const {
    return implementation().find("ref") != std::string::npos;
  }
  [[nodiscard]] virtual std::int64_t scratchpad_bytes() const = 0;

  // Packed weights: bytes of the layout that oneDNN chose, 0 if the weights are read as described.
  [[nodiscard]] virtual std::int64_t packed_bytes() const = 0;
  // Equal texts: layouts are equal too.
  [[nodiscard]] virtual const std::string& packed_layout() const = 0;
  // From the described layout into `packed`, 64-byte aligned.
  virtual void pack(const void* weights, void* packed) const = 0;

  [[nodiscard]] virtual std::unique_ptr<Execution> bind() const = 0;
};

// The arguments of a primitive; for one thread at a time.
class Execution {
 public:
  virtual ~Execution() = default;
  // pointers[i] for Role(i), null where there is none; scratchpad of scratchpad_bytes(), 64-byte
  // aligned. Throws InternalError if oneDNN fails, UserError if memory runs out.
  virtual void run(std::span<void* const> pointers, void* scratchpad) = 0;
};

// What oneDNN may use of this machine: f32 always.
[[nodiscard]] bool has_fast_bf16();  // bf16 products in hardware
[[nodiscard]] bool has_bf16();       // at least by conversion (AVX-512)

// Whether the post-op computes as eager does, special values included. relu is done as elu with
// alpha -0, since oneDNN's own relu turns NaN into 0 (a zero result may carry either sign), unless
// its input is known to be finite; clip, hardsigmoid and exp lose NaN in all their forms and are
// refused, as is leaky_relu with alpha 0.
[[nodiscard]] bool supported(const abi::PostOp& op);

}  // namespace inkle::runtime::cpu
