#include "capi/device_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "runtime/common/errors.h"

namespace inkle::capi {
namespace {

using runtime::cuda::Scope;

// Of sizes, so that results of nearly equal sizes share blocks.
constexpr std::int64_t kStep = 512;

// A block of a call may be so much larger than what is asked for.
std::int64_t most_for(std::int64_t bytes) {
  return std::max(2 * bytes, bytes + (std::int64_t{1} << 20));
}

}  // namespace

DeviceBlock::~DeviceBlock() {
  if (pool_ != nullptr) pool_->give_back(stream_, data_, bytes_);
}

void DeviceBlock::swap(DeviceBlock& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(stream_, other.stream_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
}

DeviceMemory::~DeviceMemory() {
  try {
    trim();
  } catch (const Error&) {  // the driver is gone, and its memory with it
    return;
  }
}

DeviceBlock DeviceMemory::take(std::int64_t bytes, runtime::cuda::Stream stream,
                               std::string_view purpose) {
  bytes = (std::max<std::int64_t>(bytes, 1) + kStep - 1) / kStep * kStep;
  DeviceBlock block;
  block.stream_ = stream;
  const std::lock_guard lock(mutex_);
  Idle& idle = idle_[stream];
  const auto found = idle.lower_bound(bytes);
  if (found != idle.end() && found->first <= most_for(bytes)) {
    std::tie(block.bytes_, block.data_) = *found;
    idle.erase(found);
  } else {
    const Scope scope(*device_);
    block.data_ = device_->try_allocate(bytes);
    if (block.data_ == nullptr) {
      trim();
      block.data_ = device_->try_allocate(bytes);
    }
    if (block.data_ == nullptr) {
      throw runtime::common::OutOfMemory(
          fmt::format("the GPU has no {} bytes of memory for {}", bytes, purpose));
    }
    block.bytes_ = bytes;
  }
  block.pool_ = shared_from_this();
  return block;
}

void DeviceMemory::give_back(runtime::cuda::Stream stream, void* data,
                             std::int64_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  idle_[stream].emplace(bytes, data);
}

std::int64_t DeviceMemory::idle_bytes() const {
  const std::lock_guard lock(mutex_);
  std::int64_t all = 0;
  for (const auto& [stream, idle] : idle_) {
    for (const auto& [bytes, data] : idle) all += bytes;
  }
  return all;
}

// Work that is queued may still use it.
void DeviceMemory::trim() {
  const Scope scope(*device_);
  device_->synchronize_all();
  for (auto& [stream, idle] : idle_) {
    for (const auto& [bytes, data] : idle) device_->free(data);
    idle.clear();
  }
}

}  // namespace inkle::capi
