// The part of the CUDA driver's ABI that is used, found in libcuda.so.1 at run time, so that Inkle
// builds and starts where there is none. Names, values and layouts as NVIDIA documents them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace inkle::runtime::cuda::driver {

using Result = int;
using DeviceNumber = int;
using Address = unsigned long long;  // NOLINT(google-runtime-int): as the driver declares it
using Context = void*;

inline constexpr Result kSuccess = 0;
inline constexpr Result kOutOfMemory = 2;

// Attributes of a device.
inline constexpr int kMaxThreadsPerBlock = 1;
inline constexpr int kWarpSize = 10;
inline constexpr int kClockRate = 13;  // kHz
inline constexpr int kMultiprocessors = 16;
inline constexpr int kMemoryClockRate = 36;  // kHz
inline constexpr int kMemoryBusWidth = 37;   // bits
inline constexpr int kL2Bytes = 38;
inline constexpr int kMaxThreadsPerMultiprocessor = 39;
inline constexpr int kComputeMajor = 75;
inline constexpr int kComputeMinor = 76;
inline constexpr int kSharedBytesPerMultiprocessor = 81;
inline constexpr int kRegistersPerMultiprocessor = 82;
inline constexpr int kMaxSharedBytesPerBlock = 97;

inline constexpr int kFunctionMaxDynamicShared = 8;
// A thread may call any function while others capture streams.
inline constexpr int kCaptureRelaxed = 2;
inline constexpr unsigned kHostPortable = 1;
inline constexpr unsigned kHostMapped = 2;

// As cuLaunchKernelEx takes it.
struct LaunchAttribute {
  int id = 0;
  char padding[4] = {};
  alignas(8) char value[64] = {};
};
struct LaunchConfig {
  unsigned grid_x = 1, grid_y = 1, grid_z = 1;
  unsigned block_x = 1, block_y = 1, block_z = 1;
  unsigned shared_bytes = 0;
  void* stream = nullptr;
  LaunchAttribute* attributes = nullptr;
  unsigned attribute_count = 0;
};
// The kernel waits for what is before it in its stream by itself; the value is an int, 1.
inline constexpr int kProgrammaticStreamSerialization = 6;
// All blocks are on the device at once, or the launch fails; the value is an int, 1.
inline constexpr int kCooperative = 2;

struct Api {
  Result (*init)(unsigned flags);
  Result (*error_string)(Result error, const char** text);
  Result (*driver_version)(int* version);
  Result (*device_count)(int* count);
  Result (*device_get)(DeviceNumber* device, int ordinal);
  Result (*device_name)(char* name, int length, DeviceNumber device);
  Result (*device_attribute)(int* value, int attribute, DeviceNumber device);
  Result (*primary_retain)(Context* context, DeviceNumber device);
  Result (*context_push)(Context context);
  Result (*context_pop)(Context* context);
  Result (*context_synchronize)();
  Result (*module_load)(void** module, const void* image);
  Result (*module_unload)(void* module);
  Result (*module_function)(void** function, void* module, const char* name);
  Result (*function_set)(void* function, int attribute, int value);
  Result (*launch)(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                   unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                   void* stream, void** parameters, void** extra);
  Result (*launch_with)(const LaunchConfig* config, void* function, void** parameters,
                        void** extra);
  Result (*allocate)(Address* address, std::size_t bytes);
  Result (*free)(Address address);
  Result (*host_allocate)(void** address, std::size_t bytes, unsigned flags);
  Result (*host_free)(void* address);
  Result (*copy)(Address to, Address from, std::size_t bytes, void* stream);
  Result (*fill)(Address at, unsigned char value, std::size_t bytes, void* stream);
  Result (*stream_synchronize)(void* stream);
  Result (*stream_is_capturing)(void* stream, int* status);
  Result (*exchange_capture_mode)(int* mode);
  Result (*event_create)(void** event, unsigned flags);
  Result (*event_destroy)(void* event);
  Result (*event_record)(void* event, void* stream);
  Result (*event_synchronize)(void* event);
  Result (*event_elapsed)(float* milliseconds, void* from, void* to);
  Result (*most_blocks)(int* blocks, void* function, int threads, std::size_t shared_bytes);
  // Null where the driver is of before CUDA 12.
  Result (*encode_tiled)(void* map, int dtype, unsigned rank, void* at, const std::uint64_t* sizes,
                         const std::uint64_t* strides, const unsigned* box, const unsigned* steps,
                         int interleave, int swizzle, int promotion, int fill);
};

// The driver, opened and initialised once; null, and why, where that fails.
[[nodiscard]] const Api* find(std::string& why_not);

// Throws UserError for memory, InternalError for the rest, saying what was being done.
void check(const Api& api, Result result, const char* doing);

}  // namespace inkle::runtime::cuda::driver
