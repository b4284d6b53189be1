// Placing buffers with known lifetimes into one block of memory. Used by the scheduler to foresee
// peaks and by the runtime to bind buffers; both get the same answer.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace inkle::abi {

// Every buffer of an arena starts at a multiple of this, a cache line and the widest vector.
inline constexpr std::int64_t kArenaAlignment = 64;

// In use from step `first` to step `last`, inclusive. bytes >= 0.
struct Lifetime {
  std::int64_t bytes = 0;
  std::uint32_t first = 0;
  std::uint32_t last = 0;
};

struct ArenaLayout {
  std::vector<std::int64_t> offsets;  // one a lifetime, multiples of kArenaAlignment
  std::int64_t bytes = 0;             // of the whole arena
};

// Offsets such that no two buffers that live at once overlap. Largest first, each into the tightest
// gap that holds it; a function of the input alone.
[[nodiscard]] ArenaLayout assign_offsets(std::span<const Lifetime> lifetimes);

// The largest sum of bytes (each rounded up to kArenaAlignment) in use at one step: no layout is
// smaller.
[[nodiscard]] std::int64_t peak_bytes(std::span<const Lifetime> lifetimes);

}  // namespace inkle::abi
