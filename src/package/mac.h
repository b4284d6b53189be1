// Message authentication: proves that a message was made with the key.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <span>
#include <string_view>

#include "package/hash.h"

namespace inkle::package {

// A key from a secret of any length. Secrets that can be guessed stay so.
[[nodiscard]] Hash mac_key_of(std::string_view secret);

// Keyed BLAKE2b-256 of the parts, each with its length before it, so that no byte can be taken for
// one of the next part.
[[nodiscard]] Hash mac_of(const Hash& key, std::initializer_list<std::span<const std::byte>> parts);

// Takes as long whichever bytes differ.
[[nodiscard]] bool is_same_mac(const Hash& a, const Hash& b);

}  // namespace inkle::package
