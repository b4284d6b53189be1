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

enum class Digits : std::uint8_t { few, many };

// Parameters with values in -4..4, different from instance to instance and seed to seed: multiples
// of 1/4, whose sums are exact; or such as show every change of the order of a sum. Integers are in
// 0..4. `elements`: of parameters without a shape (`f32[?]`), which need some.
[[nodiscard]] Inputs make_inputs(const Kernel& kernel, std::span<const std::int64_t> sizes,
                                 std::uint64_t seed = 0, Digits digits = Digits::few,
                                 std::int64_t elements = 0);

}  // namespace inkle::kernel
