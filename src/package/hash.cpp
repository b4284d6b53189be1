#include "package/hash.h"

#include <sodium.h>

#include <cstring>
#include <string_view>

#include "base/error.h"
#include "base/threads.h"

namespace inkle::package {
namespace {

Hash hash_as(std::string_view purpose, std::span<const std::byte> bytes) {
  // Chooses the implementation for this processor; safe to call often, from any thread.
  INKLE_CHECK(sodium_init() >= 0, "libsodium does not start");
  unsigned char personal[crypto_generichash_blake2b_PERSONALBYTES] = {};
  std::memcpy(personal, purpose.data(), purpose.size());
  Hash hash;
  const int failed = crypto_generichash_blake2b_salt_personal(
      reinterpret_cast<unsigned char*>(hash.data()), hash.size(),
      reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), nullptr, 0, nullptr,
      personal);
  INKLE_CHECK(failed == 0, "BLAKE2b does not take {} bytes", bytes.size());
  return hash;
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
