// Hashes of sections: a tree of two levels, so that one part can be checked without the others.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace inkle::package {

using Hash = std::array<std::byte, 32>;  // BLAKE2b-256

// Leaves of the tree; the last one may be shorter.
inline constexpr std::uint64_t kChunkBytes = std::uint64_t{256} << 10;

// Of chunks.
inline constexpr std::string_view kChunkPurpose = "inkle chunk";

// Of one chunk, of the whole header, and of a list of leaves: each has a personalisation of its
// own, so that none can pass for another.
[[nodiscard]] Hash hash_of_chunk(std::span<const std::byte> bytes);
[[nodiscard]] Hash hash_of_header(std::span<const std::byte> bytes);
[[nodiscard]] Hash hash_of_leaves(std::span<const Hash> leaves);

// One a chunk; uses several threads.
[[nodiscard]] std::vector<Hash> leaves_of(std::span<const std::byte> bytes);
// Of the chunks with these numbers only, in their order.
[[nodiscard]] std::vector<Hash> leaves_of(std::span<const std::byte> bytes,
                                          std::span<const std::uint64_t> numbers);
[[nodiscard]] Hash hash_of_section(std::span<const std::byte> bytes);

}  // namespace inkle::package
