#include "cache/remote_options.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include "base/descriptor.h"
#include "base/error.h"
#include "package/mac.h"

namespace inkle::cache {
namespace {

constexpr std::string_view kScheme = "redis://", kTlsScheme = "rediss://";
constexpr std::size_t kMostSecret = 4096;  // bytes
constexpr std::uint64_t kMostMilliseconds = 60'000;
constexpr std::uint64_t kMostSeconds = std::uint64_t{10} * 366 * 24 * 3600;

std::optional<std::uint64_t> number_in(std::string_view text, std::uint64_t least,
                                       std::uint64_t most) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_right = error == std::errc() && end == text.data() + text.size();
  if (!is_right || number < least || number > most) return {};
  return number;
}

std::string decode(std::string_view text) {
  std::string decoded;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    unsigned char value = 0;
    const std::string_view digits = text.substr(i + 1, 2);
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    if (digits.size() != 2 || error != std::errc() || end != digits.data() + 2) {
      user_error("a % in user or password is not followed by two hexadecimal digits");
    }
    decoded += static_cast<char>(value);
    i += 2;
  }
  return decoded;
}

void parse_user(std::string_view text, Address& address) {
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) user_error("before @ stands no user:password");
  address.user = decode(text.substr(0, colon));
  address.password = decode(text.substr(colon + 1));
  if (address.password.empty()) user_error("the password is empty");
}

void parse_host(std::string_view text, Address& address) {
  if (text.starts_with('[')) {
    const std::size_t end = text.find(']');
    if (end == std::string_view::npos) user_error("there is no ] behind the IPv6 address");
    address.host = text.substr(1, end - 1);
    text.remove_prefix(end + 1);
  } else {
    const std::size_t end = std::min(text.find(':'), text.size());
    address.host = text.substr(0, end);
    text.remove_prefix(end);
  }
  if (address.host.empty()) user_error("there is no host");
  if (text.empty()) return;
  const auto port = text.starts_with(':') ? number_in(text.substr(1), 1, 65535) : std::nullopt;
  if (!port) user_error("behind the host stands no port from 1 to 65535");
  address.port = static_cast<std::uint16_t>(*port);
}

const char* variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr || *value == '\0' ? nullptr : value;
}

std::uint64_t number_of(const char* name, std::uint64_t otherwise, const char* unit,
                        std::uint64_t most) {
  const char* const text = variable(name);
  if (text == nullptr) return otherwise;
  const auto number = number_in(text, 1, most);
  if (!number) user_error("{}: {} is no number of {} from 1 to {}", name, text, unit, most);
  return *number;
}

package::Hash key_of_environment() {
  const char* const secret = variable("INKLE_REMOTE_CACHE_KEY");
  const char* const path = variable("INKLE_REMOTE_CACHE_KEY_FILE");
  if (secret != nullptr && path != nullptr) {
    user_error("both INKLE_REMOTE_CACHE_KEY and INKLE_REMOTE_CACHE_KEY_FILE are set");
  }
  if (secret == nullptr && path == nullptr) {
    user_error(
        "its entries are machine code, so they are signed: set INKLE_REMOTE_CACHE_KEY to a secret "
        "of at least {} bytes, or INKLE_REMOTE_CACHE_KEY_FILE to a file with one",
        kLeastSecret);
  }
  try {
    return key_of_secret(secret != nullptr ? std::string(secret) : read_secret(path));
  } catch (const UserError& error) {
    user_error("{}: {}", secret != nullptr ? "INKLE_REMOTE_CACHE_KEY" : path, error.what());
  }
}

// Reads the TLS settings. Those without effect are refused, as the user expects encryption.
void read_tls(Address& address) {
  for (const char* name : {"INKLE_REMOTE_CACHE_CA", "INKLE_REMOTE_CACHE_CERTIFICATE"}) {
    if (variable(name) != nullptr && !address.tls) {
      user_error("{} is set, but INKLE_REMOTE_CACHE does not start with {}", name, kTlsScheme);
    }
  }
  if (!address.tls) return;
  if (const char* path = variable("INKLE_REMOTE_CACHE_CA")) address.tls->authorities = path;
  if (const char* path = variable("INKLE_REMOTE_CACHE_CERTIFICATE")) {
    address.tls->certificate = path;
  }
}

}  // namespace

Address parse_address(std::string_view url) {
  Address address;
  if (url.starts_with(kScheme)) {
    url.remove_prefix(kScheme.size());
  } else if (url.starts_with(kTlsScheme)) {
    url.remove_prefix(kTlsScheme.size());
    address.tls.emplace();
  } else {
    user_error("it does not start with {} or {}", kScheme, kTlsScheme);
  }
  // A password may hold / and, by mistake, @.
  if (const std::size_t at = url.rfind('@'); at != std::string_view::npos) {
    parse_user(url.substr(0, at), address);
    url.remove_prefix(at + 1);
  }
  const std::size_t slash = std::min(url.find('/'), url.size());
  parse_host(url.substr(0, slash), address);
  if (const std::string_view database = url.substr(std::min(slash + 1, url.size()));
      !database.empty()) {
    const auto number = number_in(database, 0, 1'000'000);
    if (!number) user_error("behind the last / stands no number of a database");
    address.database = static_cast<std::uint32_t>(*number);
  }
  return address;
}

std::string text_of(const Address& address) {
  const bool is_ipv6 = address.host.find(':') != std::string::npos;
  return fmt::format("{}{}{}{}:{}/{}", address.tls ? kTlsScheme : kScheme, is_ipv6 ? "[" : "",
                     address.host, is_ipv6 ? "]" : "", address.port, address.database);
}

package::Hash key_of_secret(std::string_view secret) {
  if (secret.size() < kLeastSecret) {
    user_error("the secret has {} bytes, at least {} are needed", secret.size(), kLeastSecret);
  }
  return package::mac_key_of(secret);
}

std::string read_secret(const std::filesystem::path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.number() < 0) user_error("{}", std::strerror(errno));
  struct stat facts {};
  const bool has_facts = ::fstat(file.number(), &facts) == 0;
  std::string secret(kMostSecret + 1, '\0');
  const ssize_t size = has_facts && S_ISREG(facts.st_mode)
                           ? ::pread(file.number(), secret.data(), secret.size(), 0)
                           : ssize_t{-1};
  if (size < 0) user_error("it is no file that can be read");
  if (facts.st_uid != ::geteuid() && facts.st_uid != 0) user_error("it belongs to another user");
  if ((facts.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    user_error("other users may read or write it: chmod 600");
  }
  if (static_cast<std::size_t>(size) > kMostSecret) user_error("it is too large for a secret");
  secret.resize(static_cast<std::size_t>(size));
  while (secret.ends_with('\n') || secret.ends_with('\r')) secret.pop_back();
  return secret;
}

std::optional<RemoteOptions> remote_options() {
  const char* const url = variable("INKLE_REMOTE_CACHE");
  if (url == nullptr) return {};
  RemoteOptions options;
  try {
    options.address = parse_address(url);
  } catch (const UserError& error) {
    user_error("INKLE_REMOTE_CACHE: {}", error.what());
  }
  read_tls(options.address);
  options.key = key_of_environment();
  options.timeout = std::chrono::milliseconds(
      number_of("INKLE_REMOTE_CACHE_TIMEOUT", static_cast<std::uint64_t>(options.timeout.count()),
                "milliseconds", kMostMilliseconds));
  options.expiry = std::chrono::seconds(
      number_of("INKLE_REMOTE_CACHE_EXPIRY", static_cast<std::uint64_t>(options.expiry.count()),
                "seconds", kMostSeconds));
  return options;
}

}  // namespace inkle::cache
