// The helpers that every generated program starts with.
#pragma once

#include <string>

namespace inkle::codegen::cuda {

// CUDA C++ text: types, packs of neighbouring elements, exact operations, exchanges between
// threads.
[[nodiscard]] const std::string& prelude();
// The last of these, for prelude() alone.
[[nodiscard]] std::string exchange_helpers();

}  // namespace inkle::codegen::cuda
