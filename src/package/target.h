// Names of targets: which machines a package's code runs on.
#pragma once

#include <string>
#include <string_view>

namespace inkle::package {

// "sm_90a", machine code, or "compute_80", PTX; all others are instruction sets of processors.
[[nodiscard]] bool is_of_gpu(std::string_view target);
// Text that the driver compiles when it is loaded, for the GPU that is there.
[[nodiscard]] bool is_ptx(std::string_view target);

// Machine code for "sm_90a" runs there alone; for "sm_80", on "sm_80" and later ones of the same
// major number, "sm_86"; PTX of "compute_80", on "sm_80" and all later ones.
[[nodiscard]] bool runs_on(std::string_view target, std::string_view architecture);

// Of a GPU's target, what it needs, in words: "such a GPU", "a GPU of sm_80 or later".
[[nodiscard]] std::string machines_of(std::string_view target);

}  // namespace inkle::package
