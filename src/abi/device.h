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
  std::int64_t l1_bytes = 32 << 10;  // or the most shared memory of a block
  std::int64_t l2_bytes = 1 << 20;
  std::int64_t l3_bytes = 16 << 20;
  double bytes_per_second = 40e9;  // main memory, all threads
  double flops_f32 = 500e9;        // fused multiply-adds count two, all threads

  // Bytes that tensors given to a plan are aligned to, at least (PlanArgument::alignment).
  std::int32_t input_alignment = 1;

  // Of a GPU alone.
  std::string architecture;           // what its code is made for: "sm_90a"
  std::int32_t driver_version = 0;    // as CUDA counts: 13000; 0: none
  std::int32_t block_threads = 0;     // most threads of a block
  std::int32_t resident_threads = 0;  // most threads of a multiprocessor at a time
  std::int32_t registers = 0;         // 32-bit registers of a multiprocessor
  std::int64_t shared_bytes = 0;      // shared memory of a multiprocessor
  std::int32_t cluster_blocks = 1;    // most blocks that can read each other's shared memory
  double functions_per_second = 0;    // exp2, reciprocals and the like, all multiprocessors
  double matrix_flops = 0;            // dense products of bf16
};

}  // namespace inkle::abi
