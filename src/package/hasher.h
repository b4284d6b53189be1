// BLAKE2b-256 of parts, for a purpose: equal bytes for two purposes have different hashes.
#pragma once

#include <sodium.h>

#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>

#include "base/error.h"
#include "package/hash.h"

namespace inkle::package {

class Hasher {
 public:
  // `purpose`: at most 16 characters. Without a key it is an ordinary hash.
  explicit Hasher(std::string_view purpose, std::span<const std::byte> key = {}) {
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

}  // namespace inkle::package
