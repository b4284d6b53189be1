// A TCP connection that keeps to deadlines, whatever the other side does.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace inkle::cache {

// A time to answer, and more of it for what was moved, at the least rate that a network is worth
// using at: who sends byte by byte does not gain time.
class Deadline {
 public:
  explicit Deadline(std::chrono::milliseconds timeout)
      : start_(std::chrono::steady_clock::now()), timeout_(timeout) {}
  void moved(std::size_t bytes) { bytes_ += bytes; }
  // Not negative.
  [[nodiscard]] std::chrono::milliseconds left() const;
  // What has passed beyond the time that the bytes may take.
  [[nodiscard]] std::chrono::milliseconds used() const;
  [[nodiscard]] std::chrono::milliseconds timeout() const { return timeout_; }

 private:
  std::chrono::steady_clock::time_point start_;
  std::chrono::milliseconds timeout_;
  std::size_t bytes_ = 0;
};

// Each call throws UserError that says what went wrong.
class Socket {
 public:
  // Resolves the name within the deadline too.
  Socket(const std::string& host, std::uint16_t port, const Deadline& deadline);
  ~Socket();
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  void send(std::span<const char> bytes, Deadline& deadline);
  // At least one byte; how many.
  [[nodiscard]] std::size_t receive(std::span<char> buffer, Deadline& deadline);
  // Nothing to read and not closed: so a connection is between a reply and the next command.
  [[nodiscard]] bool is_quiet() const;

 private:
  void connect(std::span<const std::byte> address, const Deadline& deadline) const;
  void wait(short events, const Deadline& deadline) const;
  int number_ = -1;
};

}  // namespace inkle::cache
