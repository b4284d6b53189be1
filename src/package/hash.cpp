#include "package/hash.h"

#include <string_view>

#include "base/threads.h"
#include "package/hasher.h"

namespace inkle::package {
namespace {

Hash hash_as(std::string_view purpose, std::span<const std::byte> bytes) {
  Hasher hasher(purpose);
  hasher.add(bytes);
  return hasher.result();
}

}  // namespace

Hash hash_of_chunk(std::span<const std::byte> bytes) { return hash_as("inkle chunk", bytes); }
Hash hash_of_header(std::span<const std::byte> bytes) { return hash_as("inkle header", bytes); }
Hash hash_of_leaves(std::span<const Hash> leaves) {
  return hash_as("inkle leaves", std::as_bytes(leaves));
}

std::vector<Hash> leaves_of(std::span<const std::byte> bytes) {
  std::vector<Hash> leaves((bytes.size() + kChunkBytes - 1) / kChunkBytes);
  parallel_for(
      0, static_cast<std::int64_t>(leaves.size()), 1, [&](std::int64_t first, std::int64_t last) {
        for (auto i = static_cast<std::size_t>(first); i < static_cast<std::size_t>(last); ++i) {
          const std::size_t at = i * kChunkBytes;
          const std::size_t size = std::min<std::size_t>(kChunkBytes, bytes.size() - at);
          leaves[i] = hash_of_chunk(bytes.subspan(at, size));
        }
      });
  return leaves;
}

Hash hash_of_section(std::span<const std::byte> bytes) { return hash_of_leaves(leaves_of(bytes)); }

}  // namespace inkle::package
