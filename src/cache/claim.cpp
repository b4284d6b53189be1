#include "cache/claim.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "base/log.h"

namespace inkle::cache {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kPatience{120'000};
constexpr milliseconds kFirstPause{1}, kLongestPause{50};

enum class Attempt { held, busy, impossible };

Attempt try_lock(int file) {
  if (::flock(file, LOCK_EX | LOCK_NB) == 0) return Attempt::held;
  return errno == EWOULDBLOCK || errno == EINTR ? Attempt::busy : Attempt::impossible;
}

// What a holder that keeps nothing leaves in the file.
bool is_given_up(int file) {
  char byte = 0;
  return ::pread(file, &byte, 1, 0) == 1;
}

}  // namespace

milliseconds user_patience() {
  static const milliseconds patience = [] {
    const char* const text = std::getenv("INKLE_CACHE_WAIT");
    if (text == nullptr) return kPatience;
    std::uint32_t seconds = 0;
    const auto [end, error] = std::from_chars(text, text + std::strlen(text), seconds);
    if (error == std::errc() && *end == '\0') return milliseconds(std::int64_t{seconds} * 1000);
    warn("cache.wait", "INKLE_CACHE_WAIT: {} is no number of seconds", text);
    return kPatience;
  }();
  return patience;
}

Claim::Claim(std::filesystem::path lock, milliseconds patience, const WaitWith& wait_with)
    : path_(std::move(lock)),
      file_(std::make_unique<Descriptor>(
          ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600))) {
  if (file_->number() < 0) {
    file_.reset();
    return;
  }
  const Attempt first = try_lock(file_->number());
  if (first == Attempt::impossible) file_.reset();
  if (first != Attempt::busy) return;
  has_waited_ = true;
  const auto body = [&] { wait(patience); };
  if (wait_with) {
    wait_with(body);
  } else {
    body();
  }
}

void Claim::wait(milliseconds patience) {
  log(LogChannel::cache, "waiting for another process that compiles this");
  const auto end = Clock::now() + patience;
  for (milliseconds pause = kFirstPause; !is_given_up(file_->number());
       pause = std::min(pause * 2, kLongestPause)) {
    const Attempt attempt = try_lock(file_->number());
    if (attempt == Attempt::held) return;
    if (attempt == Attempt::impossible) break;
    if (Clock::now() >= end) {
      warn("cache.wait", "another process has compiled for {} s, and is not waited for: {}",
           patience.count() / 1000, path_.string());
      break;
    }
    std::this_thread::sleep_for(pause);
  }
  file_.reset();
}

Claim::~Claim() {
  if (file_ == nullptr) return;
  if (!is_kept_) (void)!::pwrite(file_->number(), "x", 1, 0);
  // Those who have opened it get the lock of a file that has no name any more: all that they do
  // with it is to look whether the entry is there.
  ::unlink(path_.c_str());
  ::flock(file_->number(), LOCK_UN);  // a fork may have the file open, too
}

}  // namespace inkle::cache
