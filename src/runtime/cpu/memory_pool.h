// Blocks of working memory kept between calls, so that a call touches no fresh pages: faulting in
// 10 MB costs more than a millisecond. Shared by as many executables as the caller likes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

namespace inkle::runtime::cpu {

// Aligned memory of its own; movable.
class Block {
 public:
  Block() = default;
  // 64-byte aligned (2 MiB and on huge pages where the system grants them, from 4 MiB up). Throws
  // UserError naming `purpose` and the size when there is no memory.
  Block(std::int64_t bytes, std::string_view purpose);

  [[nodiscard]] std::byte* data() const { return data_.get(); }
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(std::byte* data) const;
  };
  std::unique_ptr<std::byte, Free> data_;
  std::int64_t bytes_ = 0;
};

// Thread-safe. A block that is out belongs to one call; how many are kept is the largest number of
// calls that ran at once.
class MemoryPool {
 public:
  // A block of at least `bytes`. The smallest that fits; if none does, the largest idle one is
  // freed before a new one is made.
  [[nodiscard]] Block take(std::int64_t bytes, std::string_view purpose);
  void give_back(Block block);
  // Frees what is idle.
  void trim();
  [[nodiscard]] std::int64_t idle_bytes() const;

 private:
  mutable std::mutex mutex_;
  std::vector<Block> idle_;  // by size, smallest first
};

}  // namespace inkle::runtime::cpu
