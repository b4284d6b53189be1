// Makes one process compile an entry while the others that need it wait: the ranks of a job.
//
//   kernels/4f/.lock-4f0c...e1    locked by the process that makes it; the OS unlocks it when its
//                                 holder ends, in whatever way
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>

#include "base/descriptor.h"

namespace inkle::cache {

inline constexpr const char* kLock = ".lock-";

// Runs what waits, as a host may have locks of its own to release meanwhile.
using WaitWith = std::function<void(const std::function<void()>&)>;

// How long a process waits for another: INKLE_CACHE_WAIT, seconds; 120 unless given, 0: never.
[[nodiscard]] std::chrono::milliseconds user_patience();

class Claim {
 public:
  // A claim that holds no lock and waits for no process.
  Claim() = default;
  // Takes the lock, or waits until it can be had, its holder has said that it keeps nothing, or
  // patience is at an end, which is said in one line of log. A file that cannot be locked is none.
  Claim(std::filesystem::path lock, std::chrono::milliseconds patience, const WaitWith& wait_with);
  // Tells waiting processes that nothing was kept, unless `kept` was called.
  ~Claim();
  Claim(Claim&& other) noexcept = default;
  Claim& operator=(Claim&&) = delete;

  [[nodiscard]] bool is_held() const { return file_ != nullptr; }
  // Whether another process may have made the entry meanwhile.
  [[nodiscard]] bool has_waited() const { return has_waited_; }
  // The entry is in the cache, by this process or an earlier holder.
  void kept() { is_kept_ = true; }

 private:
  void wait(std::chrono::milliseconds patience);

  std::filesystem::path path_;
  std::unique_ptr<Descriptor> file_;
  bool has_waited_ = false, is_kept_ = false;
};

}  // namespace inkle::cache
