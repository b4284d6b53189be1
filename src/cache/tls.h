// TLS over a socket, by OpenSSL, which is opened when the first connection needs it.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "cache/socket.h"

namespace inkle::cache {

struct TlsOptions {
  // Files in PEM. Empty authorities: those of the system, or of SSL_CERT_FILE and SSL_CERT_DIR.
  // Empty certificate: the client shows none; else the file holds its private key, too.
  std::string authorities, certificate;
  bool operator==(const TlsOptions&) const = default;
};

// Each call throws UserError that says what went wrong.
class Tls {
 public:
  // Reads the files and OpenSSL's configuration; nothing is sent.
  explicit Tls(const TlsOptions& options);
  ~Tls();
  Tls(const Tls&) = delete;
  Tls& operator=(const Tls&) = delete;

  // Refuses a server whose certificate is not for `host`, or not of one of the authorities.
  void connect(Socket& socket, const std::string& host, Deadline& deadline);
  void send(Socket& socket, std::span<const char> bytes, Deadline& deadline);
  // At least one byte; how many.
  [[nodiscard]] std::size_t receive(Socket& socket, std::span<char> buffer, Deadline& deadline);
  // Nothing that was received is still to be read.
  [[nodiscard]] bool is_quiet() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace inkle::cache
