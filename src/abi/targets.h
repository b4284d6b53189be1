// The table of devices.
#pragma once

#include <span>
#include <string_view>

#include "abi/target.h"

namespace inkle::abi {

[[nodiscard]] std::span<const Target> targets();

// The row of this name; null if there is none.
[[nodiscard]] const Target* target_named(std::string_view row);

// The row of a GPU's architecture ("sm_86"), or that of the nearest one before it; null for one
// before all.
[[nodiscard]] const Target* gpu_target(std::string_view architecture);

// The row with the figures that a device tells of itself.
[[nodiscard]] Target target_of(const Target& row, const DeviceDescription& device);

// The same of a GPU by its architecture. Throws Unsupported if it is before all rows.
[[nodiscard]] Target gpu_target_of(const DeviceDescription& device);

// A device that is as its row says.
[[nodiscard]] DeviceDescription device_of(const Target& row);

// A typical card of an architecture (sm_80, sm_90a, sm_100; compute_80 and the like for PTX), for
// tests and for compiling without the card. Throws UserError for others.
[[nodiscard]] DeviceDescription typical_device(std::string_view architecture);

}  // namespace inkle::abi
