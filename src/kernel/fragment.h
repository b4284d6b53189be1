// Which thread of a fragment's holder has which elements.
#pragma once

#include <cstdint>

#include "kernel/type.h"

namespace inkle::kernel {

struct Element {
  std::int32_t row = 0;
  std::int32_t column = 0;
};

[[nodiscard]] std::int32_t threads_of(Holder holder);  // 1, 32 or 128
// Elements that each thread holds.
[[nodiscard]] std::int32_t elements_of(const FragmentType& type);
// Element number `i` of a thread, 0 <= i < elements_of(type); `thread` counts within the holder.
// Tiles of the machine's shape follow each other by rows.
[[nodiscard]] Element fragment_element(const FragmentType& type, std::int32_t thread,
                                       std::int32_t i);

}  // namespace inkle::kernel
