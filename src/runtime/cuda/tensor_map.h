// Tensors as the copy engine of sm_90 and later takes them (abi::TensorMap), with the sizes of a
// call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "abi/plan.h"

namespace inkle::runtime::cuda {

struct MapShape {
  abi::DType dtype = abi::DType::f32;
  std::vector<std::int64_t> sizes;    // the outermost first
  std::vector<std::int64_t> strides;  // in elements
  std::vector<std::int64_t> box;
  std::int32_t swizzle = 0;  // bytes

  friend bool operator==(const MapShape&, const MapShape&) = default;
};

// CUtensorMap of the CUDA driver API: a parameter of a kernel, by value.
struct alignas(64) EncodedMap {
  std::byte bytes[128];
};

[[nodiscard]] MapShape shape_of(const abi::TensorMap& map, std::span<const std::int64_t> slots);

// Throws UserError, naming `kernel`, for what the copy engine cannot take: 1 to 5 dimensions of 1
// to 2^32 elements, all but the last with strides of whole 16 bytes below 2^40, in boxes of 1 to
// 256 elements whose rows are whole 16 bytes and no longer than the swizzle, at an address of whole
// 16 bytes (CUDA driver API, cuTensorMapEncodeTiled).
void check_map(const MapShape& shape, const void* at, const std::string& kernel);

}  // namespace inkle::runtime::cuda
