#include "frontend/pt2/tensor_data.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace inkle::frontend::pt2 {

abi::TensorView TensorData::view() const {
  abi::TensorView v;
  v.data = data;
  v.dtype = dtype;
  v.rank = static_cast<std::int32_t>(sizes.size());
  v.sizes = sizes.data();
  v.strides = strides.data();
  return v;
}

std::int64_t TensorData::element_count() const {
  std::int64_t count = 1;
  for (const std::int64_t s : sizes) count *= s;
  return count;
}

std::shared_ptr<void> aligned_memory(std::size_t bytes) {
  constexpr std::align_val_t kAlign{kAlignment};
  return {::operator new(std::max<std::size_t>(bytes, 1), kAlign),
          [](void* p) { ::operator delete(p, kAlign); }};
}

std::vector<std::int64_t> row_major_strides(std::span<const std::int64_t> sizes) {
  std::vector<std::int64_t> strides(sizes.size());
  std::int64_t stride = 1;
  for (std::size_t d = sizes.size(); d-- > 0;) {
    strides[d] = stride;
    stride *= std::max<std::int64_t>(sizes[d], 1);
  }
  return strides;
}

std::optional<std::int64_t> dense_bytes(abi::DType dtype, std::span<const std::int64_t> sizes) {
  // A size of 0 must not hide an overflow of the others: strides are products of those.
  std::int64_t bytes = abi::size_of(dtype);
  bool is_empty = false;
  for (const std::int64_t s : sizes) {
    if (s < 0) return std::nullopt;
    is_empty |= s == 0;
    if (__builtin_mul_overflow(bytes, std::max<std::int64_t>(s, 1), &bytes)) return std::nullopt;
  }
  return is_empty ? 0 : bytes;
}

std::optional<std::int64_t> span_bytes(abi::DType dtype, std::span<const std::int64_t> sizes,
                                       std::span<const std::int64_t> strides) {
  if (sizes.size() != strides.size() || !dense_bytes(dtype, sizes)) return std::nullopt;
  std::int64_t last = 0;
  bool is_empty = false;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    if (strides[d] < 0) return std::nullopt;
    is_empty |= sizes[d] == 0;
    std::int64_t step = 0;
    if (__builtin_mul_overflow(std::max<std::int64_t>(sizes[d] - 1, 0), strides[d], &step) ||
        __builtin_add_overflow(last, step, &last)) {
      return std::nullopt;
    }
  }
  if (is_empty) return 0;
  std::int64_t bytes = 0;
  if (__builtin_add_overflow(last, 1, &last) ||
      __builtin_mul_overflow(last, abi::size_of(dtype), &bytes)) {
    return std::nullopt;
  }
  return bytes;
}

TensorData make_tensor(abi::DType dtype, std::vector<std::int64_t> sizes,
                       std::vector<std::int64_t> strides) {
  TensorData result;
  result.dtype = dtype;
  if (strides.empty()) strides = row_major_strides(sizes);
  const std::optional<std::int64_t> bytes = span_bytes(dtype, sizes, strides);
  if (!bytes) throw std::bad_alloc();
  result.sizes = std::move(sizes);
  result.strides = std::move(strides);
  result.owner = aligned_memory(static_cast<std::size_t>(*bytes));
  result.data = static_cast<std::byte*>(result.owner.get());
  return result;
}

TensorData rearranged(const abi::TensorView& from, std::vector<std::int64_t> strides) {
  const auto rank = static_cast<std::size_t>(from.rank);
  TensorData to = make_tensor(from.dtype, {from.sizes, from.sizes + rank}, std::move(strides));
  const auto element = static_cast<std::size_t>(abi::size_of(from.dtype));
  const auto* source = static_cast<const std::byte*>(from.data);
  if (std::any_of(to.sizes.begin(), to.sizes.end(), [](auto s) { return s == 0; })) return to;
  std::vector<std::int64_t> index(rank, 0);
  while (true) {
    std::int64_t a = 0;
    std::int64_t b = 0;
    for (std::size_t d = 0; d < rank; ++d) {
      a += index[d] * from.strides[d];
      b += index[d] * to.strides[d];
    }
    std::memcpy(to.data + static_cast<std::size_t>(b) * element,
                source + static_cast<std::ptrdiff_t>(a) * static_cast<std::ptrdiff_t>(element),
                element);
    std::size_t d = rank;
    while (d > 0 && ++index[d - 1] == from.sizes[d - 1]) index[--d] = 0;
    if (d == 0) return to;
  }
}

}  // namespace inkle::frontend::pt2
