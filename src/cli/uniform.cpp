#include "cli/uniform.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "abi/half.h"
#include "base/error.h"
#include "base/threads.h"

namespace inkle::cli {
namespace {

using abi::DType;
using frontend::pt2::TensorData;

// SplitMix64 (Steele, Lea, Flood 2014) as a function of the position.
std::uint64_t bits_at(std::uint64_t seed, std::int64_t position) {
  std::uint64_t z = seed + 0x9e3779b97f4a7c15 * (static_cast<std::uint64_t>(position) + 1);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

template <class T, class Make>
void fill(TensorData& tensor, std::uint64_t seed, Make&& make) {
  constexpr std::int64_t kGrain = 1 << 16;
  T* const data = reinterpret_cast<T*>(tensor.data);
  parallel_for(0, tensor.element_count(), kGrain, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t e = first; e < last; ++e) data[e] = make(bits_at(seed, e));
  });
}

struct Real {
  double low, width;
  double operator()(std::uint64_t bits) const {
    return low + width * (static_cast<double>(bits >> 11) * 0x1p-53);
  }
};

template <class T>
void fill_whole(TensorData& tensor, double low, double high, std::uint64_t seed) {
  constexpr double kMost = 0x1p62;
  const double least = std::is_unsigned_v<T> ? 0 : -kMost;
  const auto first = static_cast<std::int64_t>(std::ceil(std::clamp(low, least, kMost)));
  const auto last = static_cast<std::int64_t>(std::floor(std::clamp(high, least, kMost)));
  const auto count = static_cast<std::uint64_t>(std::max<std::int64_t>(last - first, 0)) + 1;
  fill<T>(tensor, seed, [=](std::uint64_t bits) {
    return static_cast<T>(first + static_cast<std::int64_t>(bits % count));
  });
}

}  // namespace

void fill_uniform(TensorData& tensor, double low, double high, std::uint64_t seed) {
  const Real real{low, high - low};
  switch (tensor.dtype) {
    case DType::f32:
      return fill<float>(tensor, seed, [&](auto bits) { return static_cast<float>(real(bits)); });
    case DType::f64:
      return fill<double>(tensor, seed, real);
    case DType::f16:
      return fill<std::uint16_t>(tensor, seed, [&](auto bits) {
        return abi::float_to_f16(static_cast<float>(real(bits)));
      });
    case DType::bf16:
      return fill<std::uint16_t>(tensor, seed, [&](auto bits) {
        return abi::float_to_bf16(static_cast<float>(real(bits)));
      });
    case DType::i64:
      return fill_whole<std::int64_t>(tensor, low, high, seed);
    case DType::i32:
      return fill_whole<std::int32_t>(tensor, low, high, seed);
    case DType::i16:
      return fill_whole<std::int16_t>(tensor, low, high, seed);
    case DType::i8:
      return fill_whole<std::int8_t>(tensor, low, high, seed);
    case DType::u8:
      return fill_whole<std::uint8_t>(tensor, low, high, seed);
    case DType::boolean:
      return fill_whole<std::uint8_t>(tensor, std::max(low, 0.0), std::min(high, 1.0), seed);
    case DType::u16:
    case DType::u32:
    case DType::u64:
    case DType::c32:
    case DType::c64:
    case DType::c128:
    case DType::f8e4m3fn:
    case DType::f8e5m2:
    case DType::f8e4m3fnuz:
    case DType::f8e5m2fnuz:
    case DType::opaque:
      unsupported("random numbers of dtype {}", abi::name_of(tensor.dtype));
  }
}

}  // namespace inkle::cli
