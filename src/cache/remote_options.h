// Where the remote cache is and with which secret its entries are signed, as the environment says.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "cache/tls.h"
#include "package/hash.h"

namespace inkle::cache {

struct Address {
  std::string host;
  std::uint16_t port = 6379;
  std::string user, password;  // empty: none
  std::uint32_t database = 0;
  std::optional<TlsOptions> tls = {};  // nothing: the connection is not encrypted
  bool operator==(const Address&) const = default;
};

// Of "redis://[[user]:password@]host[:port][/database]", with %XX in user and password; an IPv6
// address stands in brackets. "rediss://" asks for TLS, by the system's authorities. Throws
// UserError that does not repeat the password.
[[nodiscard]] Address parse_address(std::string_view url);
// Without user and password.
[[nodiscard]] std::string text_of(const Address& address);

struct RemoteOptions {
  Address address;
  package::Hash key{};                     // of MACs
  std::chrono::milliseconds timeout{500};  // of one command; connecting has two fifths of it
  std::chrono::seconds expiry{std::chrono::hours(24 * 30)};
};

inline constexpr std::size_t kLeastSecret = 16;  // bytes
// The MAC key of a secret; throws UserError for one that is too short.
[[nodiscard]] package::Hash key_of_secret(std::string_view secret);
// What the file holds, without line ends behind it. Throws UserError for a file that others may
// read or write, or that belongs to another user than this one and root.
[[nodiscard]] std::string read_secret(const std::filesystem::path& path);

// INKLE_REMOTE_CACHE, INKLE_REMOTE_CACHE_KEY or INKLE_REMOTE_CACHE_KEY_FILE,
// INKLE_REMOTE_CACHE_TIMEOUT, INKLE_REMOTE_CACHE_EXPIRY, and of TLS INKLE_REMOTE_CACHE_CA and
// INKLE_REMOTE_CACHE_CERTIFICATE; nothing without the first. Throws UserError that says what to
// set.
[[nodiscard]] std::optional<RemoteOptions> remote_options();

}  // namespace inkle::cache
