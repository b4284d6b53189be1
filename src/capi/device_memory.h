// Memory of a GPU for results and working memory of calls, used again by later ones.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>

#include "runtime/cuda/device.h"

namespace inkle::capi {

class DeviceMemory;

// Memory that goes back to its pool with this object; movable.
class DeviceBlock {
 public:
  DeviceBlock() = default;
  DeviceBlock(DeviceBlock&& other) noexcept { swap(other); }
  DeviceBlock& operator=(DeviceBlock&& other) noexcept {
    DeviceBlock(std::move(other)).swap(*this);
    return *this;
  }
  ~DeviceBlock();

  [[nodiscard]] void* data() const { return data_; }

 private:
  friend class DeviceMemory;
  void swap(DeviceBlock& other) noexcept;

  std::shared_ptr<DeviceMemory> pool_;
  runtime::cuda::Stream stream_ = nullptr;
  void* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

// Thread-safe. A block that comes back waits for the next call on its stream: whatever that queues
// comes after what still uses the block.
class DeviceMemory : public std::enable_shared_from_this<DeviceMemory> {
 public:
  explicit DeviceMemory(std::shared_ptr<runtime::cuda::Device> device)
      : device_(std::move(device)) {}
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // 256-byte aligned; throws OutOfMemory naming `purpose` when there is none even after what is
  // idle has been freed.
  [[nodiscard]] DeviceBlock take(std::int64_t bytes, runtime::cuda::Stream stream,
                                 std::string_view purpose);
  [[nodiscard]] runtime::cuda::Device& device() const { return *device_; }
  [[nodiscard]] std::int64_t idle_bytes() const;

 private:
  friend class DeviceBlock;
  using Idle = std::multimap<std::int64_t, void*>;  // by size
  void give_back(runtime::cuda::Stream stream, void* data, std::int64_t bytes) noexcept;
  void trim();

  std::shared_ptr<runtime::cuda::Device> device_;
  mutable std::mutex mutex_;
  std::map<runtime::cuda::Stream, Idle> idle_;
};

}  // namespace inkle::capi
