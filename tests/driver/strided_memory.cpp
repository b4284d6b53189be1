#include "driver/strided_memory.h"

#include <algorithm>
#include <span>

namespace inkle::driver {

using ops::RefTensor;

Memory allocate(abi::DType dtype, std::vector<std::int64_t> sizes,
                std::vector<std::int64_t> strides) {
  Memory m;
  m.sizes = std::move(sizes);
  m.strides = std::move(strides);
  std::int64_t elements = 1;
  for (std::size_t d = 0; d < m.sizes.size(); ++d) {
    elements += std::max<std::int64_t>(m.sizes[d] - 1, 0) * m.strides[d];
  }
  const auto bytes = static_cast<std::size_t>(elements * abi::size_of(dtype));
  m.bytes = bytes;
  m.owned = std::make_unique<std::byte[]>(bytes + 64);
  const auto address = reinterpret_cast<std::uintptr_t>(m.owned.get());
  m.data = m.owned.get() + (64 - address % 64) % 64;
  m.view = {.data = m.data,
            .dtype = dtype,
            .device = {},
            .rank = static_cast<std::int32_t>(m.sizes.size()),
            .sizes = m.sizes.data(),
            .strides = m.strides.data()};
  return m;
}

void write(const RefTensor& t, const Memory& m) {
  const auto width = static_cast<std::size_t>(abi::size_of(t.dtype));
  const std::vector<std::byte> bytes = ops::to_bytes(t);
  ops::for_each_index(t.sizes, [&](std::span<const std::int64_t> index, std::size_t p) {
    std::int64_t offset = 0;
    for (std::size_t d = 0; d < index.size(); ++d) offset += index[d] * m.strides[d];
    std::copy_n(bytes.data() + p * width, width,
                m.data + offset * static_cast<std::int64_t>(width));
  });
}

RefTensor from_view(const abi::TensorView& view) {
  const std::vector<std::int64_t> sizes(view.sizes, view.sizes + view.rank);
  const auto width = static_cast<std::size_t>(abi::size_of(view.dtype));
  std::size_t count = 1;
  for (const std::int64_t size : sizes) count *= static_cast<std::size_t>(size);
  std::vector<std::byte> bytes(count * width);
  const auto* data = static_cast<const std::byte*>(view.data);
  ops::for_each_index(sizes, [&](std::span<const std::int64_t> index, std::size_t p) {
    std::int64_t offset = 0;
    for (std::size_t d = 0; d < index.size(); ++d) offset += index[d] * view.strides[d];
    std::copy_n(data + offset * static_cast<std::int64_t>(width), width, bytes.data() + p * width);
  });
  return ops::from_bytes(view.dtype, sizes, bytes);
}

}  // namespace inkle::driver
