#include "package/keys.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "base/descriptor.h"
#include "base/error.h"

namespace inkle::package {
namespace {

constexpr std::string_view kPublicWord = "inkle-public-key-1";
constexpr std::string_view kSecretWord = "inkle-secret-key-1";
constexpr std::string_view kSignatureWord = "inkle-signature-1";
constexpr std::size_t kMostBytes = 4096;  // of a file

constexpr std::string_view kLetters =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=";
constexpr int kBase64 = sodium_base64_VARIANT_ORIGINAL;

void start() { INKLE_CHECK(sodium_init() >= 0, "libsodium does not start"); }

template <std::size_t size>
const unsigned char* in(const std::array<std::byte, size>& bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}
template <std::size_t size>
unsigned char* out(std::array<std::byte, size>& bytes) {
  return reinterpret_cast<unsigned char*>(bytes.data());
}
const unsigned char* in(std::span<const std::byte> bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

template <std::size_t size>
std::string base64_of(const std::array<std::byte, size>& bytes) {
  std::string text(sodium_base64_ENCODED_LEN(size, kBase64), '\0');
  sodium_bin2base64(text.data(), text.size(), in(bytes), size, kBase64);
  text.pop_back();  // the zero
  return text;
}

template <std::size_t size>
std::array<std::byte, size> from_base64(std::string_view text, std::string_view what) {
  std::array<std::byte, size> bytes;
  std::size_t count = 0;
  // libsodium ignores the highest bit of a letter.
  const bool is_base64 = text.find_first_not_of(kLetters) == text.npos;
  const bool is_right = is_base64 &&
                        sodium_base642bin(out(bytes), size, text.data(), text.size(), nullptr,
                                          &count, nullptr, kBase64) == 0 &&
                        count == size;
  if (!is_right) user_error("{} is not {} bytes in base64", what, size);
  return bytes;
}

KeyId id_from(std::string_view text) {
  KeyId id;
  for (std::size_t i = 0; i < id.size(); ++i) {
    unsigned value = 0;
    for (std::size_t digit = 2 * i; digit < 2 * i + 2; ++digit) {
      const char c = digit < text.size() ? text[digit] : '?';
      const bool is_digit = c >= '0' && c <= '9';
      if (!is_digit && (c < 'a' || c > 'f')) user_error("the id of its key is not 16 hex digits");
      value = value * 16 + static_cast<unsigned>(is_digit ? c - '0' : c - 'a' + 10);
    }
    id[i] = static_cast<std::byte>(value);
  }
  if (text.size() != 2 * id.size()) user_error("the id of its key is not 16 hex digits");
  return id;
}

// The fields behind `word` in a text of one line, `count` of them.
std::vector<std::string_view> fields_of(std::string_view text, std::string_view word,
                                        std::size_t count) {
  if (text.ends_with('\n')) text.remove_suffix(1);
  if (text.ends_with('\r')) text.remove_suffix(1);
  std::vector<std::string_view> fields;
  while (true) {
    const std::size_t end = std::min(text.find(' '), text.size());
    fields.push_back(text.substr(0, end));
    if (end == text.size()) break;
    text.remove_prefix(end + 1);
  }
  if (fields[0] != word) {
    for (const std::string_view other : {kPublicWord, kSecretWord, kSignatureWord}) {
      if (fields[0] == other) user_error("it starts with {}, {} is expected", other, word);
    }
    user_error("it does not start with {}", word);
  }
  if (fields.size() != count + 1) {
    user_error("it has {} fields after {}, expected {}", fields.size() - 1, word, count);
  }
  fields.erase(fields.begin());
  return fields;
}

struct Read {
  std::string text;
  mode_t mode = 0;
};

Read read_file(const std::filesystem::path& path) {
  // O_NONBLOCK: a named pipe is refused, not waited for.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat facts {};
  if (file.number() < 0 || ::fstat(file.number(), &facts) != 0) {
    user_error("{}: cannot be read: {}", path.string(), std::strerror(errno));
  }
  if (!S_ISREG(facts.st_mode)) user_error("{}: is not a file", path.string());
  Read read{std::string(kMostBytes + 1, '\0'), facts.st_mode};
  std::size_t size = 0;
  while (size < read.text.size()) {
    const ssize_t done = ::read(file.number(), read.text.data() + size, read.text.size() - size);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) user_error("{}: cannot be read: {}", path.string(), std::strerror(errno));
    if (done == 0) break;
    size += static_cast<std::size_t>(done);
  }
  if (size > kMostBytes) user_error("{}: is larger than {} bytes", path.string(), kMostBytes);
  read.text.resize(size);
  return read;
}

void write_new_file(const std::filesystem::path& path, std::string_view text, mode_t mode) {
  Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
  if (file.number() < 0 && errno == EEXIST) {
    user_error("{}: exists already; keys are not written over, give another name", path.string());
  }
  if (file.number() < 0) {
    user_error("{}: cannot be written: {}", path.string(), std::strerror(errno));
  }
  const bool is_whole =
      ::write(file.number(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
      ::fsync(file.number()) == 0 && file.close();
  if (is_whole) return;
  const int error = errno;
  ::unlink(path.c_str());
  user_error("{}: cannot be written: {}", path.string(), std::strerror(error));
}

// Overwrites a text when it goes out of scope.
class Wiper {
 public:
  explicit Wiper(std::string& text) : text_(text) {}
  ~Wiper() { sodium_memzero(text_.data(), text_.size()); }
  Wiper(const Wiper&) = delete;
  Wiper& operator=(const Wiper&) = delete;

 private:
  std::string& text_;
};

}  // namespace

std::string to_string(const KeyId& id) {
  std::string digits;
  for (const std::byte b : id) digits += fmt::format("{:02x}", static_cast<unsigned>(b));
  return digits;
}

KeyId PublicKey::id() const {
  start();
  KeyId id;
  std::array<std::byte, 32> hash;
  crypto_generichash(out(hash), hash.size(), in(bytes), bytes.size(), nullptr, 0);
  std::copy_n(hash.begin(), id.size(), id.begin());
  return id;
}

std::string to_string(const PublicKey& key) {
  return fmt::format("{} {}\n", kPublicWord, base64_of(key.bytes));
}

std::string to_string(const Signature& signature) {
  return fmt::format("{} {} {}\n", kSignatureWord, to_string(signature.key),
                     base64_of(signature.bytes));
}

PublicKey parse_public_key(std::string_view text) {
  const auto fields = fields_of(text, kPublicWord, 1);
  return {from_base64<32>(fields[0], "the key")};
}

Signature parse_signature(std::string_view text) {
  const auto fields = fields_of(text, kSignatureWord, 2);
  return {id_from(fields[0]), from_base64<64>(fields[1], "the signature")};
}

SecretKey::SecretKey(const Seed& seed) : seed_(seed) {
  start();
  crypto_sign_ed25519_seed_keypair(out(public_key_.bytes), out(expanded_), in(seed_));
}

SecretKey::~SecretKey() {
  sodium_memzero(seed_.data(), seed_.size());
  sodium_memzero(expanded_.data(), expanded_.size());
}

SecretKey SecretKey::generate() {
  start();
  Seed seed;
  randombytes_buf(seed.data(), seed.size());
  SecretKey key(seed);
  sodium_memzero(seed.data(), seed.size());
  return key;
}

SecretKey SecretKey::parse(std::string_view text) {
  const auto fields = fields_of(text, kSecretWord, 1);
  Seed seed = from_base64<32>(fields[0], "the key");
  SecretKey key(seed);
  sodium_memzero(seed.data(), seed.size());
  return key;
}

SecretKey SecretKey::read(const std::filesystem::path& file) {
  Read read = read_file(file);
  const Wiper wiper(read.text);
  if ((read.mode & (S_IRWXG | S_IRWXO)) != 0) {
    user_error(
        "{0}: other users may read or write this secret key (mode {1:04o}): chmod 600 {0}, or make "
        "another with inkle key if it may be known already",
        file.string(), read.mode & 07777);
  }
  try {
    return parse(read.text);
  } catch (const UserError& error) {
    user_error("{}: is not a secret key: {}", file.string(), error.what());
  }
}

void SecretKey::write(const std::filesystem::path& file) const {
  const std::filesystem::path public_file = public_key_path(file);
  if (std::error_code error; std::filesystem::exists(public_file, error)) {
    user_error("{}: exists already; keys are not written over, give another name",
               public_file.string());
  }
  std::string text = fmt::format("{} {}\n", kSecretWord, base64_of(seed_));
  const Wiper wiper(text);
  write_new_file(file, text, 0600);
  try {
    write_new_file(public_file, to_string(public_key_), 0644);
  } catch (const UserError&) {
    ::unlink(file.c_str());
    throw;
  }
}

Signature SecretKey::sign(std::span<const std::byte> message) const {
  Signature signature{public_key_.id(), {}};
  crypto_sign_ed25519_detached(out(signature.bytes), nullptr, in(message), message.size(),
                               in(expanded_));
  return signature;
}

bool is_signed_by(const PublicKey& key, const Signature& signature,
                  std::span<const std::byte> message) {
  start();
  return signature.key == key.id() &&
         crypto_sign_ed25519_verify_detached(in(signature.bytes), in(message), message.size(),
                                             in(key.bytes)) == 0;
}

std::filesystem::path public_key_path(const std::filesystem::path& secret_key) {
  return secret_key.string() + ".pub";
}

std::string read_small_file(const std::filesystem::path& file) { return read_file(file).text; }

}  // namespace inkle::package
