#include "package/mac.h"

#include <sodium.h>

#include <bit>
#include <cstdint>

#include "package/hasher.h"

namespace inkle::package {
namespace {

static_assert(std::endian::native == std::endian::little,
              "lengths are hashed as memory holds them");

}  // namespace

Hash mac_key_of(std::string_view secret) {
  Hasher hasher("inkle secret");
  hasher.add(std::as_bytes(std::span(secret)));
  return hasher.result();
}

Hash mac_of(const Hash& key, std::initializer_list<std::span<const std::byte>> parts) {
  Hasher hasher("inkle mac", key);
  for (const auto part : parts) {
    const std::uint64_t size = part.size();
    hasher.add(std::as_bytes(std::span(&size, 1)));
    hasher.add(part);
  }
  return hasher.result();
}

bool is_same_mac(const Hash& a, const Hash& b) {
  return sodium_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace inkle::package
