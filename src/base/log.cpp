#include "base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <set>

#include "base/error.h"

namespace inkle {
namespace {

constexpr std::array<std::string_view, 8> kNames = {"fallback", "passes",  "fusion", "codegen",
                                                    "cache",    "runtime", "driver", "partition"};
static_assert(kNames.size() == static_cast<std::size_t>(LogChannel::partition) + 1);

constexpr std::uint32_t bit(std::size_t index) { return std::uint32_t{1} << index; }

// The bits of a list of names; returns the first unknown name, or an empty view.
std::string_view parse_channels(std::string_view list, std::uint32_t& mask) {
  mask = 0;
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    const std::string_view word = list.substr(0, comma);
    list.remove_prefix(std::min(comma + 1, list.size()));
    if (word.empty()) continue;
    if (word == "all") {
      mask = bit(kNames.size()) - 1;
      continue;
    }
    std::size_t index = 0;
    while (index < kNames.size() && kNames[index] != word) ++index;
    if (index == kNames.size()) return word;
    mask |= bit(index);
  }
  return {};
}

std::string unknown_channel(std::string_view word) {
  return fmt::format("unknown log channel {}, expected all or some of {}", word,
                     fmt::join(kNames, ","));
}

// The state of the process's log: the one thing that is global by nature.
class Log {
 public:
  static Log& instance() {
    // Never destroyed: threads may log while the process ends.
    static Log* const log = new Log();
    return *log;
  }

  [[nodiscard]] std::uint32_t mask() const { return mask_.load(std::memory_order_relaxed); }
  void set_mask(std::uint32_t mask) { mask_.store(mask, std::memory_order_relaxed); }

  void set_sink(LogSink sink) {
    const std::lock_guard lock(mutex_);
    sink_ = std::move(sink);
  }

  void write(std::string_view line) {
    const std::lock_guard lock(mutex_);
    if (sink_) {
      sink_(line);
    } else {
      stderr_.info("{}", line);
    }
  }

  bool first_warning(std::string_view key) {
    const std::lock_guard lock(mutex_);
    return warned_.emplace(key).second;
  }

  void reset_warnings() {
    const std::lock_guard lock(mutex_);
    warned_.clear();
  }

 private:
  Log() : stderr_("inkle", std::make_shared<spdlog::sinks::stderr_sink_st>()) {
    stderr_.set_pattern("%v");
    stderr_.flush_on(spdlog::level::info);
    const char* list = std::getenv("INKLE_LOG");
    std::uint32_t mask = 0;
    const std::string_view unknown = parse_channels(list == nullptr ? "" : list, mask);
    if (!unknown.empty()) stderr_.info("inkle warning: INKLE_LOG: {}", unknown_channel(unknown));
    mask_ = mask;
  }

  std::atomic<std::uint32_t> mask_ = 0;
  std::mutex mutex_;
  spdlog::logger stderr_;
  LogSink sink_;
  std::set<std::string, std::less<>> warned_;
};

}  // namespace

std::string_view name(LogChannel channel) { return kNames[static_cast<std::size_t>(channel)]; }

std::span<const std::string_view> log_channels() { return kNames; }

bool log_enabled(LogChannel channel) {
  return (Log::instance().mask() & bit(static_cast<std::size_t>(channel))) != 0;
}

void set_log_channels(std::string_view list) {
  std::uint32_t mask = 0;
  const std::string_view unknown = parse_channels(list, mask);
  if (!unknown.empty()) throw UserError(unknown_channel(unknown));
  Log::instance().set_mask(mask);
}

void set_log_sink(LogSink sink) { Log::instance().set_sink(std::move(sink)); }

void log_line(LogChannel channel, std::string_view line) {
  Log::instance().write(fmt::format("inkle {}: {}", name(channel), line));
}

void warn_line(std::string_view line) {
  Log::instance().write(fmt::format("inkle warning: {}", line));
}

bool first_warning(std::string_view key) { return Log::instance().first_warning(key); }

void reset_warnings() { Log::instance().reset_warnings(); }

}  // namespace inkle
