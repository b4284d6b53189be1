// Values in raw memory of any alignment, in the machine's byte order.
#pragma once

#include <cstddef>
#include <cstring>

namespace inkle {

// The T at `at`, which need not be aligned.
template <class T>
[[nodiscard]] T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// Writes the bytes of `value` to `at`, which need not be aligned.
template <class T>
void store(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

}  // namespace inkle
