// GEMMs by a library. Which of its algorithms is the fastest for a shape is measured once for each
// device (gemm_choice.h).
#pragma once

#include <cstdint>
#include <memory>

#include "abi/dtype.h"
#include "abi/library_call.h"
#include "runtime/cuda/device.h"

namespace inkle::runtime::cuda {

// d[b, i, j] = act(sum_k a[b, i, k] * b[b, k, j] + c[b, i, j] + bias[j]). Strides count elements;
// of each matrix one is 1 and the other at least the extent along the first; the last of d is 1. A
// batch stride of 0 repeats the matrix. Values are ordered for use as a key.
struct GemmShape {
  enum class Activation : std::uint8_t { none, relu, gelu_tanh };
  abi::DType in = abi::DType::f32;   // of a and b
  abi::DType out = abi::DType::f32;  // of c, d and bias
  std::int64_t m = 0, n = 0, k = 0, batch = 1;
  std::int64_t a_row = 0, a_depth = 0, a_batch = 0;
  std::int64_t b_depth = 0, b_column = 0, b_batch = 0;
  std::int64_t c_row = 0, c_batch = 0;
  std::int64_t d_row = 0, d_batch = 0;
  bool has_bias = false;
  bool has_residual = false;  // c
  Activation activation = Activation::none;
  std::int32_t alignment = 16;  // bytes, of every pointer
  bool has_workspace = true;    // else the workspace is not used

  friend auto operator<=>(const GemmShape&,
                          const GemmShape&) = default;  // NOLINT(modernize-use-nullptr)
};

struct GemmPointers {
  const void* a = nullptr;
  const void* b = nullptr;
  const void* c = nullptr;
  const void* bias = nullptr;
  void* d = nullptr;
};

// A GEMM of one shape; immutable.
class Gemm {
 public:
  virtual ~Gemm() = default;
  // Queues it. `workspace`: Gemms::kWorkspaceBytes of the device, in use by nothing else of the
  // stream meanwhile.
  virtual void run(const GemmPointers& pointers, void* workspace, Stream stream) const = 0;
  [[nodiscard]] virtual std::string name() const = 0;
};

// Thread-safe.
class Gemms {
 public:
  static constexpr std::int64_t kWorkspaceBytes = Device::kWorkspaceBytes;

  virtual ~Gemms() = default;
  // The best known algorithm for a shape; measured on these pointers (whose `d` it overwrites)
  // unless the stream is being captured. Throws Unsupported if the library has no algorithm.
  [[nodiscard]] virtual std::shared_ptr<const Gemm> find(const GemmShape& shape,
                                                         const GemmPointers& pointers,
                                                         void* workspace, Stream stream) = 0;
};

// Whether the library takes matrices of these types at all.
[[nodiscard]] bool can_multiply(abi::DType a, abi::DType b, abi::DType result);

}  // namespace inkle::runtime::cuda
