#include "runtime/cpu/memory_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "runtime/common/errors.h"

namespace inkle::runtime::cpu {
namespace {

constexpr std::int64_t kHugePage = std::int64_t{2} << 20;

}  // namespace

Block::Block(std::int64_t bytes, std::string_view purpose) {
  if (bytes <= 0) return;
  const bool huge = bytes >= 2 * kHugePage;
  const std::int64_t alignment = huge ? kHugePage : 64;
  // Sizes near the end of the range would wrap when rounded up.
  const bool sane = bytes < (std::int64_t{1} << 46);
  const std::int64_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* data = sane ? std::aligned_alloc(static_cast<std::size_t>(alignment),
                                         static_cast<std::size_t>(rounded))
                    : nullptr;
  if (data == nullptr) {
    throw common::OutOfMemory(fmt::format("out of memory: no {:.1f} MiB for {}",
                                          static_cast<double>(bytes) / (1 << 20), purpose));
  }
  if (huge) static_cast<void>(madvise(data, static_cast<std::size_t>(rounded), MADV_HUGEPAGE));
  data_.reset(static_cast<std::byte*>(data));
  bytes_ = rounded;
}

void Block::Free::operator()(std::byte* data) const { std::free(data); }

Block MemoryPool::take(std::int64_t bytes, std::string_view purpose) {
  if (bytes <= 0) return {};
  Block dropped;  // freed outside of the lock
  {
    const std::lock_guard lock(mutex_);
    const auto fits = std::find_if(idle_.begin(), idle_.end(),
                                   [&](const Block& b) { return b.bytes() >= bytes; });
    if (fits != idle_.end()) {
      Block found = std::move(*fits);
      idle_.erase(fits);
      return found;
    }
    if (!idle_.empty()) {
      dropped = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  dropped = Block();
  return Block(bytes, purpose);
}

void MemoryPool::give_back(Block block) {
  if (block.data() == nullptr) return;
  const std::lock_guard lock(mutex_);
  const auto place = std::find_if(idle_.begin(), idle_.end(),
                                  [&](const Block& b) { return b.bytes() >= block.bytes(); });
  idle_.insert(place, std::move(block));
}

void MemoryPool::trim() {
  std::vector<Block> dropped;
  const std::lock_guard lock(mutex_);
  dropped.swap(idle_);
}

std::int64_t MemoryPool::idle_bytes() const {
  const std::lock_guard lock(mutex_);
  std::int64_t total = 0;
  for (const Block& b : idle_) total += b.bytes();
  return total;
}

}  // namespace inkle::runtime::cpu
