#include "cache/tls.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/error.h"

namespace inkle::cache {
namespace {

// What a server may send that is no part of an answer: its certificates, keys, tickets.
constexpr std::size_t kMostHandshake = 256 << 10;
constexpr std::size_t kPiece = 256 << 10;  // that is encrypted at once

// As of OpenSSL 3; what its headers declare as macros is one of these.
#define INKLE_OPENSSL_FUNCTIONS(X)      \
  X(BIO_ctrl)                           \
  X(BIO_new)                            \
  X(BIO_read)                           \
  X(BIO_s_mem)                          \
  X(BIO_write)                          \
  X(ERR_clear_error)                    \
  X(ERR_error_string_n)                 \
  X(ERR_get_error)                      \
  X(SSL_CTX_ctrl)                       \
  X(SSL_CTX_free)                       \
  X(SSL_CTX_load_verify_file)           \
  X(SSL_CTX_new)                        \
  X(SSL_CTX_set_default_verify_paths)   \
  X(SSL_CTX_set_options)                \
  X(SSL_CTX_set_verify)                 \
  X(SSL_CTX_use_PrivateKey_file)        \
  X(SSL_CTX_use_certificate_chain_file) \
  X(SSL_connect)                        \
  X(SSL_ctrl)                           \
  X(SSL_free)                           \
  X(SSL_get0_param)                     \
  X(SSL_get_error)                      \
  X(SSL_get_verify_result)              \
  X(SSL_new)                            \
  X(SSL_pending)                        \
  X(SSL_read)                           \
  X(SSL_set1_host)                      \
  X(SSL_set_bio)                        \
  X(SSL_write)                          \
  X(TLS_client_method)                  \
  X(X509_VERIFY_PARAM_set1_ip_asc)      \
  X(X509_verify_cert_error_string)

struct OpenSsl {
#define INKLE_OPENSSL_MEMBER(name) decltype(&::name) name = nullptr;
  INKLE_OPENSSL_FUNCTIONS(INKLE_OPENSSL_MEMBER)
#undef INKLE_OPENSSL_MEMBER
};

// Stays open: other parts of the process may use it.
OpenSsl open() {
  constexpr const char* kName = "libssl.so.3";
  void* const library = ::dlopen(kName, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) user_error("TLS needs OpenSSL 3, and there is no {}", kName);
  OpenSsl api;
#define INKLE_OPENSSL_FIND(name)                                            \
  api.name = reinterpret_cast<decltype(api.name)>(::dlsym(library, #name)); \
  if (api.name == nullptr) user_error("{} has no function {}", kName, #name);
  INKLE_OPENSSL_FUNCTIONS(INKLE_OPENSSL_FIND)
#undef INKLE_OPENSSL_FIND
  return api;
}

const OpenSsl& openssl() {
  static const OpenSsl api = open();
  return api;
}

// Why the latest call of this thread failed.
std::string reason() {
  const unsigned long code = openssl().ERR_get_error();
  if (code == 0) return "TLS failed";
  std::array<char, 256> text{};
  openssl().ERR_error_string_n(code, text.data(), text.size());
  std::string_view words(text.data());  // error:CODE:LIBRARY:FUNCTION:REASON
  if (const std::size_t colon = words.rfind(':'); colon != std::string_view::npos) {
    words.remove_prefix(colon + 1);
  }
  return "TLS: " + std::string(words);
}

bool is_numeric(const std::string& host) {
  std::array<unsigned char, sizeof(in6_addr)> address{};
  return ::inet_pton(AF_INET, host.c_str(), address.data()) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), address.data()) == 1;
}

}  // namespace

struct Tls::Impl {
  const OpenSsl& api = openssl();
  std::unique_ptr<SSL_CTX, decltype(&::SSL_CTX_free)> context{
      api.SSL_CTX_new(api.TLS_client_method()), api.SSL_CTX_free};
  std::unique_ptr<SSL, decltype(&::SSL_free)> session{nullptr, api.SSL_free};
  // Owned by the session: what was received, and what is to be sent, encrypted.
  BIO* received = nullptr;
  BIO* pending = nullptr;

  explicit Impl(const TlsOptions& options) {
    if (context == nullptr) user_error("{}", reason());
    SSL_CTX* const c = context.get();
    api.ERR_clear_error();
    api.SSL_CTX_ctrl(c, SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_2_VERSION, nullptr);
    api.SSL_CTX_set_options(c, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    api.SSL_CTX_set_verify(c, SSL_VERIFY_PEER, nullptr);
    const bool has_authorities =
        options.authorities.empty()
            ? api.SSL_CTX_set_default_verify_paths(c) == 1
            : api.SSL_CTX_load_verify_file(c, options.authorities.c_str()) == 1;
    if (!has_authorities) user_error("certificates of {}: {}", options.authorities, reason());
    if (options.certificate.empty()) return;
    const char* const path = options.certificate.c_str();
    if (api.SSL_CTX_use_certificate_chain_file(c, path) != 1 ||
        api.SSL_CTX_use_PrivateKey_file(c, path, SSL_FILETYPE_PEM) != 1) {
      user_error("certificate and key of {}: {}", path, reason());
    }
  }

  void begin(const std::string& host) {
    session.reset(api.SSL_new(context.get()));
    received = api.BIO_new(api.BIO_s_mem());
    pending = api.BIO_new(api.BIO_s_mem());
    INKLE_CHECK(session != nullptr && received != nullptr && pending != nullptr,
                "OpenSSL has no memory for a session");
    api.SSL_set_bio(session.get(), received, pending);
    api.BIO_ctrl(received, BIO_C_SET_BUF_MEM_EOF_RETURN, -1, nullptr);  // empty is not closed
    if (is_numeric(host)) {
      if (api.X509_VERIFY_PARAM_set1_ip_asc(api.SSL_get0_param(session.get()), host.c_str()) == 1) {
        return;
      }
    } else if (api.SSL_ctrl(session.get(), SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name,
                            const_cast<char*>(host.c_str())) == 1 &&
               api.SSL_set1_host(session.get(), host.c_str()) == 1) {
      return;
    }
    user_error("{}", reason());
  }

  void flush(Socket& socket, Deadline& deadline) const {
    std::array<char, 16 << 10> piece;
    for (int size = 0;
         (size = api.BIO_read(pending, piece.data(), static_cast<int>(piece.size()))) > 0;) {
      socket.send({piece.data(), static_cast<std::size_t>(size)}, deadline);
    }
  }

  // What `operation` gives, which sends and receives as it needs to. What it receives without end
  // or result is an error, as the time that a deadline gives grows with the bytes.
  template <class Operation>
  int run(Socket& socket, Deadline& deadline, const Operation& operation) const {
    std::array<char, 16 << 10> piece;
    for (std::size_t count = 0; count <= kMostHandshake;) {
      api.ERR_clear_error();
      const int result = operation();
      const int error = result > 0 ? SSL_ERROR_NONE : api.SSL_get_error(session.get(), result);
      const std::string why = error == SSL_ERROR_SSL ? reason() : std::string();
      flush(socket, deadline);
      if (result > 0) return result;
      if (error == SSL_ERROR_ZERO_RETURN) user_error("it closed the connection");
      if (error != SSL_ERROR_WANT_READ) fail(why);
      const std::size_t size = socket.receive(piece, deadline);
      count += size;
      if (api.BIO_write(received, piece.data(), static_cast<int>(size)) != static_cast<int>(size)) {
        user_error("no memory for its answer");
      }
    }
    user_error("it sends more than {} bytes of TLS without an answer", kMostHandshake);
  }

  [[noreturn]] void fail(const std::string& why) const {
    const long verdict = api.SSL_get_verify_result(session.get());
    if (verdict != X509_V_OK) {
      user_error("its certificate is not accepted: {}", api.X509_verify_cert_error_string(verdict));
    }
    user_error("{}", why.empty() ? "TLS failed" : why);
  }
};

Tls::Tls(const TlsOptions& options) : impl_(std::make_unique<Impl>(options)) {}
Tls::~Tls() = default;

void Tls::connect(Socket& socket, const std::string& host, Deadline& deadline) {
  impl_->begin(host);
  impl_->run(socket, deadline, [&] { return impl_->api.SSL_connect(impl_->session.get()); });
}

void Tls::send(Socket& socket, std::span<const char> bytes, Deadline& deadline) {
  while (!bytes.empty()) {
    const auto piece = static_cast<int>(std::min(bytes.size(), kPiece));
    const int done = impl_->run(socket, deadline, [&] {
      return impl_->api.SSL_write(impl_->session.get(), bytes.data(), piece);
    });
    bytes = bytes.subspan(static_cast<std::size_t>(done));
  }
}

std::size_t Tls::receive(Socket& socket, std::span<char> buffer, Deadline& deadline) {
  const auto size = static_cast<int>(std::min(buffer.size(), kPiece));
  return static_cast<std::size_t>(impl_->run(socket, deadline, [&] {
    return impl_->api.SSL_read(impl_->session.get(), buffer.data(), size);
  }));
}

bool Tls::is_quiet() const {
  return impl_->api.SSL_pending(impl_->session.get()) == 0 &&
         impl_->api.BIO_ctrl(impl_->received, BIO_CTRL_PENDING, 0, nullptr) == 0;
}

}  // namespace inkle::cache
