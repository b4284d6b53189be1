#include "package/hash.h"

#include <algorithm>
#include <numeric>
#include <string_view>

#include "base/threads.h"
#include "package/chunk_hashes.h"
#include "package/hasher.h"

namespace inkle::package {
namespace {

Hash hash_as(std::string_view purpose, std::span<const std::byte> bytes) {
  Hasher hasher(purpose);
  hasher.add(bytes);
  return hasher.result();
}

}  // namespace

Hash hash_of_chunk(std::span<const std::byte> bytes) { return hash_as(kChunkPurpose, bytes); }
Hash hash_of_header(std::span<const std::byte> bytes) { return hash_as("inkle header", bytes); }
Hash hash_of_leaves(std::span<const Hash> leaves) {
  return hash_as("inkle leaves", std::as_bytes(leaves));
}

std::vector<Hash> leaves_of(std::span<const std::byte> bytes) {
  std::vector<std::uint64_t> numbers((bytes.size() + kChunkBytes - 1) / kChunkBytes);
  std::iota(numbers.begin(), numbers.end(), 0);
  return leaves_of(bytes, numbers);
}

std::vector<Hash> leaves_of(std::span<const std::byte> bytes,
                            std::span<const std::uint64_t> numbers) {
  // As many as one thread hashes at once.
  constexpr std::size_t kGroup = 8;
  std::vector<Hash> leaves(numbers.size());
  const std::uint64_t whole = bytes.size() / kChunkBytes;
  const auto hash_group = [&](std::size_t first, std::size_t last) {
    std::vector<const std::byte*> chunks;
    for (std::size_t i = first; i < last && numbers[i] < whole; ++i) {
      chunks.push_back(bytes.data() + numbers[i] * kChunkBytes);
    }
    hash_chunks(chunks, kChunkBytes, std::span(leaves).subspan(first, chunks.size()));
    for (std::size_t i = first + chunks.size(); i < last; ++i) {
      const std::span<const std::byte> rest = bytes.subspan(numbers[i] * kChunkBytes);
      leaves[i] = hash_of_chunk(rest.first(std::min<std::size_t>(kChunkBytes, rest.size())));
    }
  };
  const auto groups = static_cast<std::int64_t>((numbers.size() + kGroup - 1) / kGroup);
  parallel_for(0, groups, 1, [&](std::int64_t first, std::int64_t last) {
    for (auto g = static_cast<std::size_t>(first); g < static_cast<std::size_t>(last); ++g) {
      hash_group(g * kGroup, std::min(numbers.size(), (g + 1) * kGroup));
    }
  });
  return leaves;
}

Hash hash_of_section(std::span<const std::byte> bytes) { return hash_of_leaves(leaves_of(bytes)); }

}  // namespace inkle::package
