// Matrix products by cuBLASLt, which is opened at run time. No header of it is needed.
#pragma once

#include <memory>

#include "runtime/cuda/gemms.h"

namespace inkle::runtime::cuda {

// GEMMs on `device`, which outlives them and is current in the calling thread. Throws Unsupported
// where the library is missing.
[[nodiscard]] std::unique_ptr<Gemms> make_cublaslt(Device& device);

}  // namespace inkle::runtime::cuda
