#include "package/chunk_hashes.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace inkle::package {
namespace {

constexpr std::size_t kBlockBytes = 128;

void hash_each(std::span<const std::byte* const> chunks, std::size_t bytes,
               std::span<Hash> hashes) {
  for (std::size_t i = 0; i < chunks.size(); ++i) hashes[i] = hash_of_chunk({chunks[i], bytes});
}

#if defined(__x86_64__)

// Inlined into functions of several instruction sets, so no function here has a code of its own.
#define INKLE_INLINE [[gnu::always_inline]] inline

constexpr std::size_t kWords = 16;
constexpr std::size_t kRounds = 12;
// RFC 7693, 2.6 and 2.7.
constexpr std::array<std::uint64_t, 8> kInitial = {
    0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1,
    0x510e527fade682d1, 0x9b05688c2b3e6c1f, 0x1f83d9abfb41bd6b, 0x5be0cd19137e2179};
constexpr std::uint8_t kSigma[10][kWords] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
    {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4},
    {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13},
    {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11},
    {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5},
    {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0}};

// One word of each lane's state or message.
template <std::size_t kLanes>
using Words __attribute__((vector_size(8 * kLanes))) = std::uint64_t;
template <std::size_t kLanes>
using Bytes __attribute__((vector_size(8 * kLanes))) = std::uint8_t;

// By shuffles of bytes where no instruction rotates.
template <std::size_t kLanes, int kBits, std::size_t... kByte>
INKLE_INLINE void rotate_bytes(Words<kLanes>& x, std::index_sequence<kByte...>) {
  const auto bytes = reinterpret_cast<Bytes<kLanes>>(x);
  x = reinterpret_cast<Words<kLanes>>(__builtin_shufflevector(
      bytes, bytes, static_cast<int>(kByte / 8 * 8 + (kByte + kBits / 8) % 8)...));
}

template <std::size_t kLanes, int kBits>
INKLE_INLINE void rotate_right(Words<kLanes>& x) {
  if constexpr (kLanes == 8 || kBits % 8 != 0) {
    x = (x >> kBits) | (kBits == 63 ? x + x : x << (64 - kBits));
  } else {
    rotate_bytes<kLanes, kBits>(x, std::make_index_sequence<8 * kLanes>());
  }
}

template <std::size_t kLanes>
INKLE_INLINE void mix(Words<kLanes> (&v)[kWords], int a, int b, int c, int d,
                      const Words<kLanes>& x, const Words<kLanes>& y) {
  v[a] += v[b] + x;
  v[d] ^= v[a];
  rotate_right<kLanes, 32>(v[d]);
  v[c] += v[d];
  v[b] ^= v[c];
  rotate_right<kLanes, 24>(v[b]);
  v[a] += v[b] + y;
  v[d] ^= v[a];
  rotate_right<kLanes, 16>(v[d]);
  v[c] += v[d];
  v[b] ^= v[c];
  rotate_right<kLanes, 63>(v[b]);
}

template <std::size_t kLanes, std::size_t kRound>
INKLE_INLINE void run_round(Words<kLanes> (&v)[kWords], const Words<kLanes> (&m)[kWords]) {
  constexpr const std::uint8_t(&s)[kWords] = kSigma[kRound % 10];
  mix<kLanes>(v, 0, 4, 8, 12, m[s[0]], m[s[1]]);
  mix<kLanes>(v, 1, 5, 9, 13, m[s[2]], m[s[3]]);
  mix<kLanes>(v, 2, 6, 10, 14, m[s[4]], m[s[5]]);
  mix<kLanes>(v, 3, 7, 11, 15, m[s[6]], m[s[7]]);
  mix<kLanes>(v, 0, 5, 10, 15, m[s[8]], m[s[9]]);
  mix<kLanes>(v, 1, 6, 11, 12, m[s[10]], m[s[11]]);
  mix<kLanes>(v, 2, 7, 8, 13, m[s[12]], m[s[13]]);
  mix<kLanes>(v, 3, 4, 9, 14, m[s[14]], m[s[15]]);
}

template <std::size_t kLanes, std::size_t... kRound>
INKLE_INLINE void run_rounds(Words<kLanes> (&v)[kWords], const Words<kLanes> (&m)[kWords],
                             std::index_sequence<kRound...>) {
  (run_round<kLanes, kRound>(v, m), ...);
}

// Words of `a` whose number has the bit kDistance change places with those of `b` that lack it.
template <std::size_t kLanes, std::size_t kDistance, std::size_t... kLane>
INKLE_INLINE void exchange(Words<kLanes>& a, Words<kLanes>& b, std::index_sequence<kLane...>) {
  const Words<kLanes> low = __builtin_shufflevector(
      a, b, static_cast<int>((kLane & kDistance) != 0 ? kLanes + kLane - kDistance : kLane)...);
  b = __builtin_shufflevector(
      a, b, static_cast<int>((kLane & kDistance) != 0 ? kLanes + kLane : kLane + kDistance)...);
  a = low;
}

template <std::size_t kLanes, std::size_t kDistance>
INKLE_INLINE void transpose(Words<kLanes>* rows) {
  for (std::size_t i = 0; i < kLanes; ++i) {
    if ((i & kDistance) == 0) {
      exchange<kLanes, kDistance>(rows[i], rows[i + kDistance], std::make_index_sequence<kLanes>());
    }
  }
  if constexpr (kDistance > 1) transpose<kLanes, kDistance / 2>(rows);
}

// Hashes of kLanes chunks.
template <std::size_t kLanes>
INKLE_INLINE void hash_lanes(const std::byte* const* chunks, std::size_t bytes, Hash* hashes) {
  // 32 bytes of digest, no key, a tree of one node; the last two words are the personalisation.
  constexpr std::uint64_t kParameters = 0x01010000 | sizeof(Hash);
  std::uint64_t personal[2] = {};
  std::memcpy(personal, kChunkPurpose.data(), kChunkPurpose.size());
  Words<kLanes> h[8];
  for (std::size_t i = 0; i < 8; ++i) h[i] = Words<kLanes>{} + kInitial[i];
  h[0] ^= Words<kLanes>{} + kParameters;
  h[6] ^= Words<kLanes>{} + personal[0];
  h[7] ^= Words<kLanes>{} + personal[1];
  for (std::size_t at = 0; at < bytes; at += kBlockBytes) {
    Words<kLanes> m[kWords];
    for (std::size_t first = 0; first < kWords; first += kLanes) {
      for (std::size_t lane = 0; lane < kLanes; ++lane) {
        std::memcpy(&m[first + lane], chunks[lane] + at + 8 * first, sizeof m[0]);
      }
      transpose<kLanes, kLanes / 2>(m + first);
    }
    Words<kLanes> v[kWords];
    for (std::size_t i = 0; i < 8; ++i) v[i] = h[i];
    for (std::size_t i = 0; i < 8; ++i) v[8 + i] = Words<kLanes>{} + kInitial[i];
    v[12] ^= Words<kLanes>{} + (at + kBlockBytes);
    if (at + kBlockBytes == bytes) v[14] = ~v[14];
    run_rounds<kLanes>(v, m, std::make_index_sequence<kRounds>());
    for (std::size_t i = 0; i < 8; ++i) h[i] ^= v[i] ^ v[8 + i];
  }
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    std::uint64_t words[4];
    for (std::size_t i = 0; i < 4; ++i) words[i] = h[i][lane];
    std::memcpy(&hashes[lane], words, sizeof words);
  }
}

__attribute__((target("arch=x86-64-v4"))) void hash_eight(const std::byte* const* chunks,
                                                          std::size_t bytes, Hash* hashes) {
  hash_lanes<8>(chunks, bytes, hashes);
}

__attribute__((target("avx2"))) void hash_four(const std::byte* const* chunks, std::size_t bytes,
                                               Hash* hashes) {
  hash_lanes<4>(chunks, bytes, hashes);
}

std::size_t most_lanes() {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    return 8;
  }
  return __builtin_cpu_supports("avx2") ? 4 : 1;
}

#else

void hash_eight(const std::byte* const*, std::size_t, Hash*) {}
void hash_four(const std::byte* const*, std::size_t, Hash*) {}
std::size_t most_lanes() { return 1; }

#endif

}  // namespace

void hash_chunks(std::span<const std::byte* const> chunks, std::size_t bytes,
                 std::span<Hash> hashes) {
  hash_chunks_with(8, chunks, bytes, hashes);
}

void hash_chunks_with(std::size_t lanes, std::span<const std::byte* const> chunks,
                      std::size_t bytes, std::span<Hash> hashes) {
  INKLE_CHECK(bytes != 0 && bytes % kBlockBytes == 0 && hashes.size() == chunks.size(),
              "{} chunks of {} bytes for {} hashes", chunks.size(), bytes, hashes.size());
  static const std::size_t most = most_lanes();
  lanes = std::min(lanes, most);
  std::size_t i = 0;
  for (; lanes >= 8 && i + 8 <= chunks.size(); i += 8) hash_eight(&chunks[i], bytes, &hashes[i]);
  for (; lanes >= 4 && i + 4 <= chunks.size(); i += 4) hash_four(&chunks[i], bytes, &hashes[i]);
  hash_each(chunks.subspan(i), bytes, hashes.subspan(i));
}

}  // namespace inkle::package
