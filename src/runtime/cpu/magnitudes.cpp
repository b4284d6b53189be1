#include "runtime/cpu/magnitudes.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/threads.h"

// Not under the sanitizers, which cannot run the resolvers that this makes.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define INKLE_EACH_ISA __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define INKLE_EACH_ISA
#endif

namespace inkle::runtime::cpu {
namespace {

constexpr std::int64_t kGrain = 1 << 15;  // floats worth a thread: some microseconds
constexpr double kInfinity = std::numeric_limits<double>::infinity();

using Lanes = std::int32_t __attribute__((vector_size(64)));

// Without its sign, a float compares as the integer of its bits; NaN is above infinity.
INKLE_EACH_ISA std::int32_t largest_bits(const float* data, std::int64_t count) {
  constexpr std::int64_t kLanes = 16;
  Lanes largest[4] = {};
  const Lanes mask = Lanes{} + 0x7fffffff;
  std::int64_t i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes) {
    for (std::int64_t j = 0; j < 4; ++j) {
      Lanes x;
      std::memcpy(&x, data + i + j * kLanes, sizeof x);
      x &= mask;
      largest[j] = x > largest[j] ? x : largest[j];
    }
  }
  std::int32_t result = 0;
  for (; i < count; ++i)
    result = std::max(result, std::bit_cast<std::int32_t>(data[i]) & 0x7fffffff);
  for (const Lanes& lanes : largest) {
    for (std::int64_t k = 0; k < kLanes; ++k) result = std::max(result, lanes[k]);
  }
  return result;
}

}  // namespace

float largest_magnitude(const void* data, std::int64_t bytes) {
  std::atomic<std::int32_t> largest = 0;
  const auto* floats = static_cast<const float*>(data);
  parallel_for(0, bytes / 4, kGrain, [&](std::int64_t first, std::int64_t last) {
    const std::int32_t mine = largest_bits(floats + first, last - first);
    std::int32_t seen = largest.load(std::memory_order_relaxed);
    while (mine > seen && !largest.compare_exchange_weak(seen, mine, std::memory_order_relaxed)) {
    }
  });
  const float result = std::bit_cast<float>(largest.load());
  return std::isfinite(result) ? result : std::numeric_limits<float>::infinity();
}

double bound_after(const PostOpDescription& op, double bound, double operand_bound) {
  using abi::PostOpKind;
  switch (op.kind) {
    case PostOpKind::relu:
    case PostOpKind::gelu_erf:  // |gelu(x)| <= |x|
    case PostOpKind::gelu_tanh:
    case PostOpKind::hardswish:
    case PostOpKind::abs:
      return bound;
    case PostOpKind::swish:
      return bound;  // x times a number between 0 and 1
    case PostOpKind::tanh:
    case PostOpKind::logistic:
    case PostOpKind::hardsigmoid:
      return 1.001;
    case PostOpKind::elu:
      return std::max(bound, 1.001 * std::fabs(op.alpha));
    case PostOpKind::leaky_relu:
      return bound * std::max(1.0, std::fabs(op.alpha));
    case PostOpKind::linear:
      return bound * std::fabs(op.alpha) + std::fabs(op.beta);
    case PostOpKind::square:
      return bound * bound;
    case PostOpKind::add:
      return bound + operand_bound;
    case PostOpKind::mul:
      return bound * operand_bound;
    case PostOpKind::clip:
      return std::max(std::fabs(op.alpha), std::fabs(op.beta));
    case PostOpKind::sqrt:
    case PostOpKind::exp:
      return kInfinity;
  }
  return kInfinity;
}

}  // namespace inkle::runtime::cpu
