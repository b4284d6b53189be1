// Convolutions by a library. Which of its algorithms is the fastest for a shape is measured
// once for each device (convolution_choice.h).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "abi/dtype.h"
#include "runtime/cuda/device.h"

namespace inkle::runtime::cuda {

// y = relu(convolution(x, w) + residual + bias), what is not there left out, or one of its
// gradients, of which none is there; sums in f32, rounded once. Factors of f32 may be rounded to
// TF32 where the library finds that faster, as in eager mode unless it is told otherwise. Sizes and
// strides count elements: [batch, channel, depth or 1, row or 1, column] of x, y and residual,
// [channel of y, channel of x in its group, ...] of w. Values are ordered for use as a key.
struct ConvolutionShape {
  using Dims = std::array<std::int64_t, 5>;
  using Spatial = std::array<std::int64_t, 3>;
  enum class Result : std::uint8_t {
    y,
    x,  // the gradient of x, from that of y
    w,  // the gradient of w, from that of y
  };
  Result result = Result::y;
  abi::DType dtype = abi::DType::bf16;  // of all operands; f16, bf16 or f32
  Dims x{}, w{}, y{};
  Dims x_strides{}, w_strides{}, y_strides{}, residual_strides{};
  Spatial stride{}, padding{}, dilation{};
  bool is_volume = false;  // depth is a dimension
  bool has_bias = false;   // [channel of y], dense
  bool has_residual = false;
  bool relu = false;
  std::int32_t alignment = 16;  // bytes, of every pointer

  friend auto operator<=>(const ConvolutionShape&,
                          const ConvolutionShape&) = default;  // NOLINT(modernize-use-nullptr)
};

// As in the shape, gradients in the place of what they are of.
struct ConvolutionPointers {
  void* x = nullptr;
  void* w = nullptr;
  const void* bias = nullptr;
  const void* residual = nullptr;
  void* y = nullptr;
};

// A convolution of one shape; immutable.
class Convolution {
 public:
  virtual ~Convolution() = default;
  // Queues it. `workspace`: Convolutions::kWorkspaceBytes of the device, in use by nothing else of
  // the stream meanwhile.
  virtual void run(const ConvolutionPointers& pointers, void* workspace, Stream stream) const = 0;
  [[nodiscard]] virtual std::string name() const = 0;
  // As measured; 0: not measured.
  [[nodiscard]] virtual double microseconds() const { return 0; }
};

// Thread-safe.
class Convolutions {
 public:
  static constexpr std::int64_t kWorkspaceBytes = Device::kWorkspaceBytes;

  virtual ~Convolutions() = default;
  // Searches algorithms for shapes that will be needed, in parallel: a query of the library takes a
  // tenth of a second a shape. Throws as the library fails.
  virtual void prepare(std::span<const ConvolutionShape> /*shapes*/) {}
  // The same beside the caller, who need not be in the device's Scope; find() waits for it. Takes
  // no memory of the device but the library's own, and no stream.
  virtual void foresee(std::vector<ConvolutionShape> /*shapes*/) {}
  // Loads what the first search would wait for. Throws as the library fails.
  virtual void warm_up() {}
  // Waits for background searches, before the process ends.
  virtual void settle() noexcept {}
  // The best known algorithm for a shape, measured on these pointers (overwriting the result) if
  // the stream is not being captured; null if the library has none.
  [[nodiscard]] virtual std::shared_ptr<const Convolution> find(const ConvolutionShape& shape,
                                                                const ConvolutionPointers& pointers,
                                                                void* workspace, Stream stream) = 0;
};

}  // namespace inkle::runtime::cuda
