#include "package/mac.h"

#include <sodium.h>

#include <bit>
#include <cstdint>
#include <cstring>

#include "base/error.h"

namespace inkle::package {
namespace {

static_assert(std::endian::native == std::endian::little,
              "lengths are hashed as memory holds them");

class Hasher {
 public:
  // Without a key it is an ordinary hash.
  Hasher(std::string_view purpose, std::span<const std::byte> key) {
    // Chooses the implementation for this processor; safe to call often, from any thread.
    INKLE_CHECK(sodium_init() >= 0, "libsodium does not start");
    unsigned char personal[crypto_generichash_blake2b_PERSONALBYTES] = {};
    std::memcpy(personal, purpose.data(), purpose.size());
    const int failed = crypto_generichash_blake2b_init_salt_personal(
        &state_, reinterpret_cast<const unsigned char*>(key.data()), key.size(), sizeof(Hash),
        nullptr, personal);
    INKLE_CHECK(failed == 0, "BLAKE2b does not take a key of {} bytes", key.size());
  }
  void add(std::span<const std::byte> bytes) {
    crypto_generichash_blake2b_update(&state_, reinterpret_cast<const unsigned char*>(bytes.data()),
                                      bytes.size());
  }
  [[nodiscard]] Hash result() {
    Hash hash;
    crypto_generichash_blake2b_final(&state_, reinterpret_cast<unsigned char*>(hash.data()),
                                     hash.size());
    return hash;
  }

 private:
  crypto_generichash_blake2b_state state_;
};

}  // namespace

Hash mac_key_of(std::string_view secret) {
  Hasher hasher("inkle secret", {});
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
