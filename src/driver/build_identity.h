// Which build of Inkle this is: what code of another build has made is not taken for its own.
#pragma once

#include <string>

namespace inkle::driver {

// The linker's hash of the program or module that this function is in, in hexadecimal; empty if it
// was linked without one.
[[nodiscard]] const std::string& build_identity();

}  // namespace inkle::driver
