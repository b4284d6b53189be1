// Vector clocks of the interpreter: what an agent has seen of all others. For interpret_*.cpp only.
//
// A clock has a page for each block of which something was seen, shared between threads that have
// seen the same: after a barrier all threads of a block share one.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace inkle::kernel {

// An agent: page of its block, position there. The threads of a block come first.
struct Channel {
  std::uint32_t page = 0xffffffffu;
  std::uint32_t position = 0;
  friend bool operator==(const Channel&, const Channel&) = default;
};

class Clock {
 public:
  [[nodiscard]] std::uint32_t get(Channel channel) const;
  void raise(Channel channel, std::uint32_t clock);
  void join(const Clock& other);
  [[nodiscard]] bool is_same(const Clock& other) const;
  [[nodiscard]] bool shares_all(const Clock& other) const;  // is the same, at a glance

 private:
  struct Page {
    std::uint32_t number = 0;
    std::shared_ptr<std::vector<std::uint32_t>> clocks;
  };
  std::vector<std::uint32_t>& own(Page& page);

  std::vector<Page> pages_;  // by number
};

}  // namespace inkle::kernel
