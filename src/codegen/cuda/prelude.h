// The helpers that every generated program starts with.
#pragma once

#include <string>

namespace inkle::codegen::cuda {

// CUDA C++ text: types, packs of neighbouring elements, exact operations, reductions of teams.
[[nodiscard]] const std::string& prelude();
// The last of these, for prelude() alone.
[[nodiscard]] std::string team_helpers();

}  // namespace inkle::codegen::cuda
