// Whether a process asks for executable memory.
#pragma once

#include <cstddef>

namespace inkle::package {

// How often this process has made memory executable: mprotect() of the test binary counts.
[[nodiscard]] int times_made_executable();

// Mappings of this process that are executable now, of files and of no file.
[[nodiscard]] std::size_t executable_mappings();

}  // namespace inkle::package
