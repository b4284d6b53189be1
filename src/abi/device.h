// Where data lives, and what the code generators and the scheduler may know of a machine.
#pragma once

#include <cstdint>
#include <string>

namespace inkle::abi {

enum class DeviceKind : std::uint8_t { cpu, cuda };

struct Device {
  DeviceKind kind = DeviceKind::cpu;
  std::int32_t index = 0;
  friend bool operator==(const Device&, const Device&) = default;
};

// Facts that steer schedules; never correctness.
struct DeviceDescription {
  DeviceKind kind = DeviceKind::cpu;
  std::string name;
  std::int32_t vector_bytes = 32;  // CPU: register width (16, 32, 64); GPU: one access (16)
  std::int32_t vector_registers = 16;
  std::int32_t parallelism = 1;  // threads, or multiprocessors
  std::int32_t warp_size = 1;
  std::int64_t l1_bytes = 32 << 10;  // or shared memory of a block
  std::int64_t l2_bytes = 1 << 20;
  std::int64_t l3_bytes = 16 << 20;
  double bytes_per_second = 40e9;  // main memory, all threads
  double flops_f32 = 500e9;        // fused multiply-adds count two, all threads
};

}  // namespace inkle::abi
