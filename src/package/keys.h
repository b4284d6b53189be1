// Ed25519 keys and signatures, and the lines of text that hold them in files. docs/package.md has
// the lines byte by byte. Errors say what is wrong with a text; callers name its file.
#pragma once

#include <array>
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace inkle::package {

// Tells keys apart in messages: the first bytes of the hash of a public key. Proves nothing.
using KeyId = std::array<std::byte, 8>;
[[nodiscard]] std::string to_string(const KeyId& id);  // hexadecimal

struct PublicKey {
  std::array<std::byte, 32> bytes{};
  [[nodiscard]] KeyId id() const;
  bool operator==(const PublicKey&) const = default;
};

struct Signature {
  KeyId key{};  // of the signer
  std::array<std::byte, 64> bytes{};
  bool operator==(const Signature&) const = default;
};

// One line each, with its line end. Parsing a printed text gives what was printed, and a text that
// parses prints as it was, apart from its line end. Throw UserError.
[[nodiscard]] std::string to_string(const PublicKey& key);
[[nodiscard]] std::string to_string(const Signature& signature);
[[nodiscard]] PublicKey parse_public_key(std::string_view text);
[[nodiscard]] Signature parse_signature(std::string_view text);

// Memory that held one is overwritten.
class SecretKey {
 public:
  [[nodiscard]] static SecretKey generate();
  // Throws UserError.
  [[nodiscard]] static SecretKey parse(std::string_view text);
  // From a file that its owner alone can read. Throws UserError naming the file.
  [[nodiscard]] static SecretKey read(const std::filesystem::path& file);
  ~SecretKey();
  SecretKey(const SecretKey&) = default;
  SecretKey& operator=(const SecretKey&) = default;

  // Writes this key into a new file with mode 0600, and its public key into FILE.pub. Throws
  // UserError if either exists: keys are never written over.
  void write(const std::filesystem::path& file) const;
  [[nodiscard]] const PublicKey& public_key() const { return public_key_; }
  // The same message gives the same signature.
  [[nodiscard]] Signature sign(std::span<const std::byte> message) const;

 private:
  using Seed = std::array<std::byte, 32>;
  explicit SecretKey(const Seed& seed);

  Seed seed_{};
  std::array<std::byte, 64> expanded_{};  // as libsodium takes it
  PublicKey public_key_;
};

[[nodiscard]] bool is_signed_by(const PublicKey& key, const Signature& signature,
                                std::span<const std::byte> message);

// Of "key", "key.pub".
[[nodiscard]] std::filesystem::path public_key_path(const std::filesystem::path& secret_key);

// A small text file. Throws UserError naming it.
[[nodiscard]] std::string read_small_file(const std::filesystem::path& file);

}  // namespace inkle::package
