// Entries of the cache that machines share, on an untrusted Redis server. An entry is signed
// with a secret that the machines have and the server does not, since it is machine code.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cache/redis.h"
#include "cache/remote_options.h"

namespace inkle::cache {

inline constexpr std::size_t kMostRemoteBytes = std::size_t{64} << 20;  // of an entry

// The MAC of key and file, then the file; and back: nothing for what seal() has not made with that
// secret and that key.
[[nodiscard]] std::vector<std::byte> seal(const package::Hash& secret, std::string_view key,
                                          std::span<const std::byte> file);
[[nodiscard]] std::optional<std::vector<std::byte>> unseal(const package::Hash& secret,
                                                           std::string_view key,
                                                           std::span<const std::byte> sealed);

// Nothing here throws. After the first failure, and when it has been slow for too long, the server
// is left alone by this process, with one line of log. Thread-safe.
class Remote {
 public:
  explicit Remote(RemoteOptions options);
  ~Remote();
  Remote(const Remote&) = delete;
  Remote& operator=(const Remote&) = delete;

  // As INKLE_REMOTE_CACHE says; null without it and, with one line of log, if it cannot be used so.
  [[nodiscard]] static std::shared_ptr<Remote> of_environment();

  // The file of an entry by the hash of its key. One that is not signed with our secret is refused,
  // said once, and not there.
  [[nodiscard]] std::optional<std::vector<std::byte>> find(const std::string& name,
                                                           std::string_view key);
  // Replaces what was there.
  void put(const std::string& name, std::string_view key, std::span<const std::byte> file);
  // Says, once, why an entry is not taken.
  void refuse(const std::string& name, std::string_view why) const;

  // Its address and whether it answers, in one line.
  [[nodiscard]] std::string state();

 private:
  // The reply to one command; nothing if there is none, now or ever again.
  std::optional<Reply> call(std::initializer_list<std::string_view> words, std::size_t bytes);
  Redis& connection();
  void spend(std::chrono::milliseconds time);
  void give_up(std::string_view why);

  const RemoteOptions options_;
  std::mutex mutex_;
  std::unique_ptr<Redis> connection_;
  std::chrono::milliseconds patience_;  // left for slow answers
  bool is_left_alone_ = false, takes_entries_ = true;
};

}  // namespace inkle::cache
