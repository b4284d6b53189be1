// oneDNN, opened when something first asks for it: a program whose plan calls no library runs
// without it, and so does what links the runtime.
#pragma once

#include <string>

namespace inkle::runtime::cpu {

// Before any other use of oneDNN's functions; costs a load after the first time. Throws Unsupported
// with the system's reason where the library, of the version that this was compiled for, is not to
// be had.
void open_onednn();

// "2.6.3", of the library that is open after that. Throws as open_onednn().
[[nodiscard]] std::string onednn_version();

}  // namespace inkle::runtime::cpu
