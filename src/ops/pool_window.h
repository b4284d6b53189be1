// The windows of pooling ops and of their gradients.
#pragma once

#include <cstdint>
#include <optional>
#include <type_traits>
#include <variant>
#include <vector>

#include "ops/interpreter.h"
#include "ops/lowering.h"

namespace inkle::ops {

using Numbers = std::vector<std::int64_t>;

// The last `kernel.size()` dimensions are pooled.
struct Window {
  Numbers kernel, stride, padding, dilation;
  bool ceil_mode = false, count_include_pad = true;
  std::optional<double> divisor;

  [[nodiscard]] std::size_t rank() const { return kernel.size(); }
  [[nodiscard]] std::int64_t count() const {
    std::int64_t count = 1;
    for (const std::int64_t k : kernel) count *= k;
    return count;
  }
};

template <class Source>
Numbers numbers(const Source& in, std::size_t arg) {
  if constexpr (std::is_same_v<Source, graph::Inference>) {
    return std::holds_alternative<Expr>(in.arg(arg)) ? Numbers{in.constant_integer(arg)}
                                                     : in.constant_integers(arg);
  } else {
    return std::holds_alternative<Expr>(in.node().args[arg]) ? Numbers{in.integer(arg)}
                                                             : in.integers(arg);
  }
}
inline Numbers repeated(Numbers list, std::size_t rank) {
  if (list.size() == 1) list.resize(rank, list.front());
  return list;
}

enum class Pool { max, average };

// From argument `first` on; max: (kernel, stride, padding, dilation, ceil_mode); average: (kernel,
// stride, padding, ceil_mode, count_include_pad, divisor_override? but in 1-D).
template <Pool pool, std::size_t rank, class Source>
Window window_of(const Source& in, std::size_t first = 1) {
  Window w{.kernel = repeated(numbers(in, first), rank),
           .stride = repeated(numbers(in, first + 1), rank),
           .padding = repeated(numbers(in, first + 2), rank),
           .dilation = Numbers(rank, 1)};
  if (w.stride.empty()) w.stride = w.kernel;
  if (pool == Pool::max) {
    w.dilation = repeated(numbers(in, first + 3), rank);
    w.ceil_mode = in.boolean(first + 4);
  } else {
    w.ceil_mode = in.boolean(first + 3);
    w.count_include_pad = in.boolean(first + 4);
    if (rank > 1 && !in.is_none(first + 5)) w.divisor = in.real(first + 5);
  }
  return w;
}

// Elements of the window at `o` that count along dimension d: those before the end of the padded
// input, or those inside.
inline Expr counted(const Window& w, std::size_t d, Expr o, Expr size) {
  const Expr start = o * w.stride[d] - w.padding[d];
  const Expr end = sym::min(start + w.kernel[d], size + w.padding[d]);
  if (w.count_include_pad) return end - start;
  return sym::min(end, size) - sym::max(start, start.context().constant(0));
}

}  // namespace inkle::ops
