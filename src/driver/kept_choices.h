// The fastest measured algorithms of CUDA libraries (runtime/cuda/library_choices.h), in the
// user's cache: one entry for each problem.
#pragma once

#include <functional>
#include <memory>

#include "cache/store.h"
#include "runtime/cuda/device.h"
#include "runtime/cuda/library_choices.h"

namespace inkle::driver {

// In the store that this gives whenever it is asked; null: nothing is kept.
[[nodiscard]] std::shared_ptr<runtime::cuda::LibraryChoices> choices_in(
    std::function<std::shared_ptr<cache::Store>()> store);

// From now on the device's choices are kept in the user's cache.
void keep_choices(runtime::cuda::Device& device);

}  // namespace inkle::driver
