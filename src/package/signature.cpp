#include "package/signature.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "package/output_file.h"
#include "package/reason.h"

namespace inkle::package {
namespace {

constexpr const char* kVariable = "INKLE_PACKAGE_KEY";
constexpr std::string_view kKeyStart = "inkle-public-key-";
// Before the header in what is signed, so that no signature for another purpose fits.
constexpr std::string_view kPurpose = "inkle package signature 1\n";

std::vector<std::byte> message_of(const HeaderBytes& header) {
  const auto purpose = std::as_bytes(std::span(kPurpose));
  std::vector<std::byte> message(purpose.begin(), purpose.end());
  message.insert(message.end(), header.begin(), header.end());
  return message;
}

PublicKey read_key(std::string_view key) {
  if (key.starts_with(kKeyStart)) return parse_public_key(key);
  const std::filesystem::path file(key);
  const std::string text = read_small_file(file);
  try {
    return parse_public_key(text);
  } catch (const UserError& error) {
    user_error("{}: is not a public key: {}", file.string(), error.what());
  }
}

template <class... Args>
[[noreturn]] void refuse(std::string_view name, Reason reason, fmt::format_string<Args...> format,
                         Args&&... args) {
  throw BadPackage(name, BadPackage(reason, fmt::format(format, std::forward<Args>(args)...)));
}

}  // namespace

HeaderBytes header_of(std::span<const std::byte> file) {
  HeaderBytes header;
  INKLE_CHECK(file.size() >= header.size(), "{} bytes hold no header", file.size());
  std::copy_n(file.begin(), header.size(), header.begin());
  return header;
}

Signature sign(const HeaderBytes& header, const SecretKey& key) {
  return key.sign(message_of(header));
}

std::filesystem::path signature_path(const std::filesystem::path& package) {
  return package.string() + ".sig";
}

void write_signature(const std::filesystem::path& package, const Signature& signature) {
  const std::string text = to_string(signature);
  OutputFile file(signature_path(package));
  file.write(0, std::as_bytes(std::span(text)));
  file.finish();
}

Trust Trust::of_environment() {
  const char* const given = std::getenv(kVariable);
  if (given == nullptr) return anyone();
  try {
    Trust trust = of_key(given);
    trust.source_ = fmt::format("{}={}", kVariable, trust.source_);
    return trust;
  } catch (const UserError& error) {
    user_error("{}: {}", kVariable, error.what());
  }
}

Trust Trust::of_key(std::string_view key) {
  if (key.empty()) user_error("the key is empty: name the file of a public key, or leave it out");
  Trust trust;
  trust.key_ = read_key(key);
  trust.source_ = key.starts_with(kKeyStart) ? "the given line" : std::string(key);
  return trust;
}

void Trust::check(std::string_view name, std::span<const std::byte> file,
                  const std::optional<std::string>& signature) const {
  if (!key_) return;
  const std::string demanded = fmt::format("key {} ({})", to_string(key_->id()), source_);
  if (file.size() < sizeof(FileHeader)) {
    refuse(name, Reason::truncated, "{} bytes are too few for a header", file.size());
  }
  const std::string file_name = signature_path(std::filesystem::path(name)).string();
  if (!signature) {
    refuse(name, Reason::not_signed,
           "is not signed, and a signature by {} is required: there is no {}; get it from its "
           "signer, or make it with inkle sign",
           demanded, file_name);
  }
  const auto parsed = [&] {
    try {
      return parse_signature(*signature);
    } catch (const UserError& error) {
      refuse(name, Reason::bad_signature,
             "its signature {} is damaged: {}; get it again or sign again", file_name,
             error.what());
    }
  }();
  if (parsed.key != key_->id()) {
    refuse(name, Reason::other_key,
           "is signed by key {}, but {} is required: check which key belongs to the package",
           to_string(parsed.key), demanded);
  }
  if (!is_signed_by(*key_, parsed, message_of(header_of(file)))) {
    refuse(name, Reason::bad_signature,
           "its signature {} does not match: package or signature were changed after signing, or "
           "are of different builds; get both again or sign again",
           file_name);
  }
}

void Trust::check_file(const std::filesystem::path& package,
                       std::span<const std::byte> file) const {
  if (!key_) return;
  const std::filesystem::path path = signature_path(package);
  std::error_code error;
  std::optional<std::string> signature;
  if (std::filesystem::exists(path, error) || error) {
    try {
      signature = read_small_file(path);
    } catch (const UserError& unread) {
      refuse(package.string(), Reason::bad_signature, "its signature {}", unread.what());
    }
  }
  check(package.string(), file, signature);
}

}  // namespace inkle::package
