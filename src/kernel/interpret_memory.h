// Memory of the interpreter with what was done to each element. For interpret_*.cpp only.
//
// The unit of all checks is a byte range that every access has or lacks as a whole: an element, or
// one byte where memories of different dtypes overlap.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "kernel/interpret_clock.h"
#include "kernel/kernel.h"

namespace inkle::kernel {

// One access: who, when, how.
struct Record {
  Channel channel;
  std::uint32_t clock = 0;
  OperationId operation = kNone;
  Scope scope = Scope::thread;
  bool is_strong = false;        // relaxed or more
  bool is_asynchronous = false;  // through the asynchronous proxy

  [[nodiscard]] bool is_none() const { return clock == 0; }
};

// The agent that accesses, and what it has seen.
struct Actor {
  Channel channel;
  std::uint32_t clock = 1;
  const Clock* seen = nullptr;
  const Clock* fenced = nullptr;  // what is ordered before accesses through the asynchronous proxy
  bool is_thread = true;          // its own accesses are in order
  bool is_asynchronous = false;
};

// What a write of a location has published, for agents that acquire.
struct Release {
  Clock seen, fenced;
  Channel channel;
  Scope scope = Scope::gpu;
};

// Values that a location had, the last one at the back: what a relaxed read may still see.
struct Version {
  Channel channel;  // who wrote it; none: it was there before
  std::uint32_t clock = 0;
  std::array<std::byte, 8> value{};
  std::vector<Release> releases;
};
struct History {
  static constexpr std::size_t kMost = 8;
  std::vector<Version> versions;
  std::int64_t first = 0;  // number of versions[0]
  struct Seen {
    Channel channel;
    std::uint32_t clock = 0;
    std::int64_t version = 0;
  };
  std::vector<Seen> reads;  // the latest version that each thread has read
};

class Storage {
 public:
  Storage(std::byte* data, std::int64_t bytes, std::int64_t unit, bool is_initialised);
  Storage(std::int64_t bytes, std::int64_t unit);  // its own, not initialised

  [[nodiscard]] std::byte* data() { return data_; }
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }
  [[nodiscard]] std::int64_t unit() const { return unit_; }
  [[nodiscard]] std::int64_t units() const { return static_cast<std::int64_t>(cells_.size()); }

  struct Cell {
    Record write, read;
    std::uint32_t more = 0;   // 1 + position of further records
    std::uint8_t writes = 0;  // how many, up to 2
    bool is_initialised = false;
    bool is_read_as_constant = false;
  };
  struct More {
    std::vector<Record> writes, reads;
  };
  [[nodiscard]] Cell& cell(std::int64_t unit) { return cells_[static_cast<std::size_t>(unit)]; }
  [[nodiscard]] More* more(const Cell& cell) {
    return cell.more == 0 ? nullptr : &more_[cell.more - 1];
  }
  More& make_more(Cell& cell);
  // Forgets its accesses: after a race nothing is checked against those before.
  void forget(Cell& cell);
  std::unordered_map<std::int64_t, std::vector<Release>>& releases() { return releases_; }
  std::unordered_map<std::int64_t, History>& histories() { return histories_; }

 private:
  std::vector<std::byte> owned_;
  std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0;
  std::int64_t unit_ = 1;
  std::vector<Cell> cells_;
  std::vector<More> more_;
  std::unordered_map<std::int64_t, std::vector<Release>> releases_;
  std::unordered_map<std::int64_t, History> histories_;
};

// A memory with the sizes of an instance.
struct Layout {
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;  // elements, with padding
  std::int64_t elements = 0;          // with padding
  std::int64_t element_bytes = 1;
  std::int32_t swizzle = 0;
};
[[nodiscard]] std::int64_t swizzled(std::int64_t byte, std::int32_t swizzle);

}  // namespace inkle::kernel
