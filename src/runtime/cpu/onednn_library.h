// oneDNN, opened when something first asks for it: a program whose plan calls no library runs
// without it, and so does what links the runtime.
#pragma once

#include <string>
#include <string_view>

namespace inkle::runtime::cpu {

// What to do where it cannot be opened.
inline constexpr std::string_view kOnednnRemedy =
    "install it (Debian: libdnnl2), or add its folder to LD_LIBRARY_PATH";

// Before any other use of oneDNN's functions; costs a load after the first time. Throws Unsupported
// with the system's reason where the library, of the version that this was compiled for, is not to
// be had, and with the remedy.
void open_onednn();

// "2.6.3", of the library that is open after that. Throws as open_onednn(), without the remedy.
[[nodiscard]] std::string onednn_version();

}  // namespace inkle::runtime::cpu
