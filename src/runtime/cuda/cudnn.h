// Convolutions by cuDNN, which is opened at run time. No header of it is needed.
#pragma once

#include <memory>
#include <string>

#include "runtime/cuda/convolutions.h"

namespace inkle::runtime::cuda {

// Convolutions on `device`, which outlives them and is the calling thread's; null, and why, where
// the library is missing or does not start.
[[nodiscard]] std::unique_ptr<Convolutions> make_cudnn(Device& device, std::string& why_not);

}  // namespace inkle::runtime::cuda
