// Signatures of packages: "m.inkle.sig" beside "m.inkle". What is signed is the header, which
// covers the rest of the file by hash and, through the plan, a file of weights.
#pragma once

#include <array>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "package/format.h"
#include "package/keys.h"

namespace inkle::package {

// The first bytes of a package.
using HeaderBytes = std::array<std::byte, sizeof(FileHeader)>;
[[nodiscard]] HeaderBytes header_of(std::span<const std::byte> file);  // which has that many

[[nodiscard]] Signature sign(const HeaderBytes& header, const SecretKey& key);
[[nodiscard]] std::filesystem::path signature_path(const std::filesystem::path& package);
// Replaces an earlier one. Throws UserError.
void write_signature(const std::filesystem::path& package, const Signature& signature);

// Which packages are accepted: all, or those that one key has signed.
class Trust {
 public:
  [[nodiscard]] static Trust anyone() { return {}; }
  // The key that the environment variable INKLE_PACKAGE_KEY names; anyone if it is not set. Throws
  // UserError if it is empty or no key can be read there.
  [[nodiscard]] static Trust of_environment();
  // `key`: the file of a public key, or the line that such a file holds. Throws UserError.
  [[nodiscard]] static Trust of_key(std::string_view key);
  // That of the environment if no key is given.
  [[nodiscard]] static Trust of(const std::optional<std::string>& key) {
    return key ? of_key(*key) : of_environment();
  }

  // Null: anyone.
  [[nodiscard]] const PublicKey* key() const { return key_ ? &*key_ : nullptr; }
  // Throw BadPackage naming the package, why it is refused, and what to do. `signature`: the text
  // of the file; nothing if there is none.
  void check(std::string_view name, std::span<const std::byte> file,
             const std::optional<std::string>& signature) const;
  // With the signature that lies beside the package.
  void check_file(const std::filesystem::path& package, std::span<const std::byte> file) const;

 private:
  std::optional<PublicKey> key_;
  std::string source_;  // of the key, for messages
};

}  // namespace inkle::package
