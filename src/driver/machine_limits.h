// What this machine can do at best, measured: the limits that reports hold kernels against.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "abi/device.h"

namespace inkle::driver {

struct MachineLimits {
  // Where a working set of at most `capacity` bytes lives, smallest first; the last is main memory.
  struct Level {
    std::string name;  // "L2", "L3", "memory"
    std::int64_t capacity = 0;
    double bytes_per_second = 0;
  };
  std::vector<Level> levels;
  double flops_f32 = 0;     // operations a second; a fused multiply-add counts two
  double flops_matrix = 0;  // of GEMMs in f16 and bf16; 0: as f32
  int threads = 1;

  // The level for a working set of `bytes`.
  [[nodiscard]] const Level& level(std::int64_t bytes) const;
};

// Runs a triad, a[i] = b[i] + s * c[i], over a working set of each level and independent fused
// multiply-adds in registers, on num_threads() threads at once; the sum of each thread's best of
// many short calls, as a limit should be. Takes less than a second. Bytes count as the triad's
// source says: two reads and a write. Throws std::bad_alloc.
// A GPU's limits are those that its description states: nothing is measured.
[[nodiscard]] MachineLimits measure_limits(const abi::DeviceDescription& device);

}  // namespace inkle::driver
