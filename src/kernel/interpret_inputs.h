// Arguments for running a kernel by itself: commands and tests make them here.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernel/interpret.h"

namespace inkle::kernel {

// Owns the memory of the arguments of all instances.
struct Inputs {
  std::vector<std::unique_ptr<std::byte[]>> memory;
  std::vector<Instance> instances;
};

// A value for each size: as `given` ("s0=5") says, else the hint, else a small value of the range
// that is not a multiple of a power of two where the divisor allows it. Throws UserError where a
// given one is no size or not in its range.
[[nodiscard]] std::vector<std::int64_t> choose_sizes(const Kernel& kernel,
                                                     std::span<const std::string> given = {});

// Parameters with small values that are exact in their dtype, different from instance to instance
// and seed to seed; integers are in 0..4. Parameters that are only written hold other values.
[[nodiscard]] Inputs make_inputs(const Kernel& kernel, std::span<const std::int64_t> sizes,
                                 std::uint64_t seed = 0);

}  // namespace inkle::kernel
