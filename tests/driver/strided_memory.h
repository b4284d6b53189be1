// Tensors of tests in memory: with any strides, at aligned addresses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "abi/tensor_view.h"
#include "ops/interpreter.h"

namespace inkle::driver {

struct Memory {
  std::unique_ptr<std::byte[]> owned;
  std::byte* data = nullptr;  // 64-byte aligned
  std::size_t bytes = 0;
  std::vector<std::int64_t> sizes, strides;
  abi::TensorView view;
};

// Zeros, from the first element to the last; one element where there are none.
[[nodiscard]] Memory allocate(abi::DType dtype, std::vector<std::int64_t> sizes,
                              std::vector<std::int64_t> strides);

void write(const ops::RefTensor& t, const Memory& m);
[[nodiscard]] ops::RefTensor from_view(const abi::TensorView& view);

}  // namespace inkle::driver
