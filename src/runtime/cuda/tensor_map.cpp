#include "runtime/cuda/tensor_map.h"

#include <fmt/format.h>

#include "base/error.h"

namespace inkle::runtime::cuda {

MapShape shape_of(const abi::TensorMap& map, std::span<const std::int64_t> slots) {
  MapShape shape{
      .dtype = map.dtype, .sizes = {}, .strides = {}, .box = map.box, .swizzle = map.swizzle};
  for (const abi::Slot s : map.sizes) shape.sizes.push_back(slots[s]);
  for (const abi::Slot s : map.strides) shape.strides.push_back(slots[s]);
  return shape;
}

void check_map(const MapShape& shape, const void* at, const std::string& kernel) {
  constexpr std::int64_t kGranule = 16;  // bytes
  constexpr std::int64_t kMostElements = std::int64_t{1} << 32;
  constexpr std::int64_t kMostStride = std::int64_t{1} << 40;  // bytes
  constexpr std::int64_t kMostBox = 256;
  const auto fail = [&](const std::string& what) {
    user_error("kernel {}: a tensor cannot be copied in boxes: {}", kernel, what);
  };
  const std::int64_t size = abi::size_of(shape.dtype);
  const std::size_t rank = shape.sizes.size();
  if (rank < 1 || rank > 5) fail(fmt::format("{} dimensions, 1 to 5 are needed", rank));
  if (shape.strides.size() != rank || shape.box.size() != rank) {
    fail("a stride and a length of the box are needed for each dimension");
  }
  if (reinterpret_cast<std::uintptr_t>(at) % kGranule != 0) {
    fail("it does not begin at a multiple of 16 bytes");
  }
  for (std::size_t d = 0; d < rank; ++d) {
    if (shape.sizes[d] < 1 || shape.sizes[d] > kMostElements) {
      fail(fmt::format("dimension {} has {} elements, 1 to 2^32 are needed", d, shape.sizes[d]));
    }
    if (shape.box[d] < 1 || shape.box[d] > kMostBox) {
      fail(fmt::format("a box has {} elements in dimension {}, 1 to 256 are needed", shape.box[d],
                       d));
    }
    if (d + 1 == rank) continue;
    if (shape.strides[d] < 1 || shape.strides[d] > kMostStride / size ||
        shape.strides[d] * size % kGranule != 0) {
      fail(fmt::format("the stride of dimension {} is {} bytes, no multiple of 16 below 2^40", d,
                       shape.strides[d] * size));
    }
  }
  if (shape.strides.back() != 1) {
    fail(fmt::format("the last stride is {}, not 1", shape.strides.back()));
  }
  const std::int64_t row = shape.box.back() * size;
  if (row % kGranule != 0) fail(fmt::format("a row of a box has {} bytes, no multiple of 16", row));
  if (shape.swizzle != 0 && row > shape.swizzle) {
    fail(fmt::format("a row of a box has {} bytes, more than the swizzle of {}", row,
                     shape.swizzle));
  }
}

}  // namespace inkle::runtime::cuda
