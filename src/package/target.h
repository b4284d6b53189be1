// Names of targets: which machines a package's code runs on.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "image/processor.h"
#include "package/reason.h"

namespace inkle::package {

// "sm_90a", machine code, or "compute_80", PTX; all others are instruction sets of processors.
[[nodiscard]] bool is_of_gpu(std::string_view target);
// Text that the driver compiles when it is loaded, for the GPU that is there.
[[nodiscard]] bool is_ptx(std::string_view target);

// Machine code for "sm_90a" runs there alone; for "sm_80", on "sm_80" and later ones of the same
// major number, "sm_86"; PTX of "compute_80", on "sm_80" and all later ones.
[[nodiscard]] bool runs_on(std::string_view target, std::string_view architecture);

// Of a GPU's target, what it needs, in words: "a GPU of sm_90a", "a GPU of sm_80 or later".
[[nodiscard]] std::string machines_of(std::string_view target);

// What a target needs, and why it does not run somewhere.
struct Fit {
  std::string needs;             // all of it
  std::optional<Reason> reason;  // none: it runs
  std::string lacks;             // what of it is not there; empty where it runs
  std::string here;              // what is there instead
};
// Of code for this processor.
[[nodiscard]] Fit fit_on_processor(std::span<const image::CpuidBits> required);
// Of a GPU's target on any of the GPUs of these architectures; `why_none` if there is none.
[[nodiscard]] Fit fit_on_gpus(std::string_view target, std::span<const std::string> architectures,
                              std::string_view why_none = "there is none");

}  // namespace inkle::package
