#include "cache/socket.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"

namespace inkle::cache {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kLeastBytesPerMillisecond = 16 << 10;

struct Endpoint {
  int family = 0;
  std::vector<std::byte> address;
};
struct Resolved {
  std::string error;
  std::vector<Endpoint> endpoints;
};

Resolved resolve(const std::string& host, std::uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int failed = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (failed != 0) return {::gai_strerror(failed), {}};
  Resolved resolved;
  for (const addrinfo* a = list; a != nullptr; a = a->ai_next) {
    const auto* const bytes = reinterpret_cast<const std::byte*>(a->ai_addr);
    resolved.endpoints.push_back({a->ai_family, {bytes, bytes + a->ai_addrlen}});
  }
  ::freeaddrinfo(list);
  return resolved;
}

// A resolver may block for many seconds and cannot be cancelled: its thread is detached and owns
// what it needs.
Resolved resolve_within(const std::string& host, std::uint16_t port, milliseconds time) {
  if (Resolved numeric = resolve(host, port, AI_NUMERICHOST); numeric.error.empty()) return numeric;
  std::promise<Resolved> promise;
  std::future<Resolved> future = promise.get_future();
  std::thread([promise = std::move(promise), host, port]() mutable {
    promise.set_value(resolve(host, port, 0));
  }).detach();
  if (future.wait_for(time) != std::future_status::ready) return {"its name is not resolved", {}};
  return future.get();
}

[[noreturn]] void late(const Deadline& deadline) {
  user_error("no answer within {} ms", deadline.timeout().count());
}

}  // namespace

milliseconds Deadline::left() const { return std::max(timeout_ - used(), milliseconds(0)); }

milliseconds Deadline::used() const {
  const auto passed =
      std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - start_);
  return std::max(passed - milliseconds(bytes_ / kLeastBytesPerMillisecond), milliseconds(0));
}

Socket::Socket(const std::string& host, std::uint16_t port, const Deadline& deadline) {
  const Resolved resolved = resolve_within(host, port, deadline.left());
  std::string error = resolved.error;
  for (const Endpoint& endpoint : resolved.endpoints) {
    number_ = ::socket(endpoint.family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    try {
      connect(endpoint.address, deadline);
      return;
    } catch (const UserError& failure) {
      error = failure.what();
    }
    if (number_ >= 0) ::close(std::exchange(number_, -1));
  }
  user_error("{}", error);
}

void Socket::connect(std::span<const std::byte> address, const Deadline& deadline) const {
  const auto* const target = reinterpret_cast<const sockaddr*>(address.data());
  if (number_ < 0) user_error("{}", std::strerror(errno));
  int failed = 0;
  if (::connect(number_, target, static_cast<socklen_t>(address.size())) != 0) failed = errno;
  if (failed == EINPROGRESS) {
    wait(POLLOUT, deadline);
    socklen_t size = sizeof failed;
    if (::getsockopt(number_, SOL_SOCKET, SO_ERROR, &failed, &size) != 0) failed = errno;
  }
  if (failed != 0) user_error("{}", std::strerror(failed));
  const int yes = 1;  // what is sent is a whole command
  ::setsockopt(number_, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

Socket::~Socket() {
  if (number_ >= 0) ::close(number_);
}

void Socket::wait(short events, const Deadline& deadline) const {
  pollfd entry{.fd = number_, .events = events, .revents = 0};
  int ready = 0;
  do {
    ready = ::poll(&entry, 1, static_cast<int>(deadline.left().count()));
  } while (ready < 0 && errno == EINTR);
  if (ready < 0) user_error("{}", std::strerror(errno));
  if (ready == 0) late(deadline);
}

void Socket::send(std::span<const char> bytes, Deadline& deadline) {
  while (!bytes.empty()) {
    const ssize_t done = ::send(number_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (done < 0 && (errno == EAGAIN || errno == EINTR)) {
      wait(POLLOUT, deadline);
      continue;
    }
    if (done < 0) user_error("{}", std::strerror(errno));
    deadline.moved(static_cast<std::size_t>(done));
    bytes = bytes.subspan(static_cast<std::size_t>(done));
  }
}

std::size_t Socket::receive(std::span<char> buffer, Deadline& deadline) {
  while (true) {
    // Also where there is always something to read: a flood must end too.
    if (deadline.left() == milliseconds(0)) late(deadline);
    const ssize_t done = ::recv(number_, buffer.data(), buffer.size(), 0);
    if (done > 0) {
      deadline.moved(static_cast<std::size_t>(done));
      return static_cast<std::size_t>(done);
    }
    if (done == 0) user_error("it closed the connection");
    if (errno != EAGAIN && errno != EINTR) user_error("{}", std::strerror(errno));
    wait(POLLIN, deadline);
  }
}

bool Socket::is_quiet() const {
  pollfd entry{.fd = number_, .events = POLLIN, .revents = 0};
  return ::poll(&entry, 1, 0) == 0;
}

}  // namespace inkle::cache
