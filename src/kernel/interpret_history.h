// Stale values: a strong read may see any value that nothing orders before a later one which it
// must have seen. Random schedules take such a value now and then. For interpret_*.cpp only.
#pragma once

#include <cstdint>
#include <random>
#include <span>

#include "kernel/interpret_launch.h"

namespace inkle::kernel {

class Histories {
 public:
  Histories(bool is_kept, std::uint64_t seed) : is_kept_(is_kept), random_(seed) {}
  // A write of the location, at this clock of the thread, has been published; `value` is what the
  // location will hold.
  void remember(const Thread& thread, std::uint32_t clock, MemoryLocation location,
                std::int64_t bytes, std::span<const std::byte> value) const;
  // The value that a strong read sees where it is not the last; null: the last.
  const Version* out_of_date(const Thread& thread, MemoryLocation location);

 private:
  bool is_kept_;
  std::mt19937_64 random_;  // which value a relaxed read sees
};

}  // namespace inkle::kernel
