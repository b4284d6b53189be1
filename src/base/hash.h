// Hashes that are the same in every process and on every run, for cache keys, interning and file
// checks. Not cryptographic: they find accidents, not attacks.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace inkle {

static_assert(std::endian::native == std::endian::little, "hashes are stored in files");

namespace hash_detail {

__extension__ using Wide = unsigned __int128;

// Two unrelated odd constants: the fractions of the golden ratio and of the square root of two.
inline constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15;
inline constexpr std::uint64_t kRoot = 0x6a09e667f3bcc909;

// High and low half of the product, xored: every bit of each operand reaches every bit of the
// result.
[[nodiscard]] constexpr std::uint64_t fold(std::uint64_t a, std::uint64_t b) {
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<std::uint64_t>(product >> 64) ^ static_cast<std::uint64_t>(product);
}

}  // namespace hash_detail

// `seed` extended by `value`; the order of calls matters.
[[nodiscard]] constexpr std::uint64_t hash_combine(std::uint64_t seed, std::uint64_t value) {
  using hash_detail::fold, hash_detail::kGolden, hash_detail::kRoot;
  return fold((seed + kGolden) ^ std::rotl(value, 32), fold(value ^ kRoot, kGolden) | 1);
}

// 64-bit hash of bytes; `seed` chooses the function.
[[nodiscard]] inline std::uint64_t hash_bytes(std::string_view bytes, std::uint64_t seed = 0) {
  using hash_detail::fold, hash_detail::kGolden, hash_detail::kRoot;
  std::uint64_t state = fold(seed ^ std::rotl(kRoot, 17), kGolden) ^ bytes.size();
  const char* data = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; data += 8, left -= 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, data, 8);
    state = fold(state ^ word, kGolden) + word;
  }
  std::uint64_t tail = 0;
  if (left > 0) std::memcpy(&tail, data, left);
  return fold(fold(state ^ tail, kRoot) + tail, kGolden);
}

// 128 bits: enough to name content by, 32 hexadecimal digits as text.
struct Hash128 {
  std::uint64_t high = 0;
  std::uint64_t low = 0;

  friend bool operator==(const Hash128&, const Hash128&) = default;
  friend auto operator<=>(const Hash128&, const Hash128&) = default;
};

[[nodiscard]] inline Hash128 hash128(std::string_view bytes) {
  return {hash_bytes(bytes, hash_detail::kRoot), hash_bytes(bytes, hash_detail::kGolden)};
}

[[nodiscard]] constexpr Hash128 hash_combine(const Hash128& seed, const Hash128& value) {
  return {hash_combine(hash_combine(seed.high, value.low), value.high),
          hash_combine(hash_combine(seed.low, value.high), value.low)};
}

[[nodiscard]] inline std::string to_hex(const Hash128& hash) {
  return fmt::format("{:016x}{:016x}", hash.high, hash.low);
}

}  // namespace inkle
