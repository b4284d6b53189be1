// A tensor in memory with its owner: weights of files, arrays read and written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "abi/dtype.h"
#include "abi/tensor_view.h"

namespace inkle::frontend::pt2 {

// `data` points at element (0, ..., 0); strides count elements. `owner` keeps the memory alive; it
// is writable (a mapped file is copied on write and never changed).
struct TensorData {
  abi::DType dtype = abi::DType::f32;
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  std::byte* data = nullptr;
  std::shared_ptr<void> owner;

  // Points into this object.
  [[nodiscard]] abi::TensorView view() const;
  [[nodiscard]] std::int64_t element_count() const;
};

// Alignment of all memory made here and wanted of weights.
inline constexpr std::size_t kAlignment = 64;

// Uninitialised memory of at least one byte, aligned to kAlignment; std::bad_alloc if there is
// none.
[[nodiscard]] std::shared_ptr<void> aligned_memory(std::size_t bytes);
[[nodiscard]] std::vector<std::int64_t> row_major_strides(std::span<const std::int64_t> sizes);
// Uninitialised, strides row-major unless given (dense in some order). Sizes are not negative and
// their product was checked by the caller.
[[nodiscard]] TensorData make_tensor(abi::DType dtype, std::vector<std::int64_t> sizes,
                                     std::vector<std::int64_t> strides = {});
// A copy with row-major strides, or with these.
[[nodiscard]] TensorData rearranged(const abi::TensorView& from,
                                    std::vector<std::int64_t> strides = {});

// Bytes of a dense tensor; nothing when a size is negative or the product exceeds 63 bits.
[[nodiscard]] std::optional<std::int64_t> dense_bytes(abi::DType dtype,
                                                      std::span<const std::int64_t> sizes);
// Bytes from element 0 to the end of the last element, for strides that are not negative; nothing
// on overflow or a negative number.
[[nodiscard]] std::optional<std::int64_t> span_bytes(abi::DType dtype,
                                                     std::span<const std::int64_t> sizes,
                                                     std::span<const std::int64_t> strides);

}  // namespace inkle::frontend::pt2
