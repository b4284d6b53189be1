// Byte copy between strided tensors of one dtype and size.
#pragma once

#include <cstdint>
#include <span>

namespace inkle::runtime::cpu {

// to[i...] = from[i...] for all indices below `sizes`; strides in elements of `element_bytes`. The
// tensors do not overlap, or are the same.
void strided_copy(std::span<const std::int64_t> sizes, std::int64_t element_bytes, const void* from,
                  std::span<const std::int64_t> from_strides, void* to,
                  std::span<const std::int64_t> to_strides);

}  // namespace inkle::runtime::cpu
