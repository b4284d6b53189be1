// What the library says, and the only place where it says anything. Channels are silent unless the
// environment variable INKLE_LOG names them (INKLE_LOG=fusion,passes or INKLE_LOG=all); warnings
// are always said, each once. Lines go to standard error unless a sink takes them.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace inkle {

enum class LogChannel {
  fallback,   // what runs in eager, and why
  passes,     // each pass: time, nodes before and after
  fusion,     // why two nodes were or were not fused
  codegen,    // which NVRTC, schedules without code, measured schedules
  cache,      // hits, misses and the field that differs
  runtime,    // how libraries' algorithms are chosen
  driver,     // stages and their time
  partition,  // what the backward is given
};

[[nodiscard]] std::string_view name(LogChannel channel);
// In the order of their declaration.
[[nodiscard]] std::span<const std::string_view> log_channels();

// True if INKLE_LOG (read once) or set_log_channels names `channel`. Costs one load.
[[nodiscard]] bool log_enabled(LogChannel channel);

// Replaces the set of channels by a list as in INKLE_LOG; an unknown name throws UserError.
void set_log_channels(std::string_view list);

// Takes every line, without its newline, instead of standard error; an empty sink undoes it. The
// sink is called under a lock and must not log.
using LogSink = std::function<void(std::string_view line)>;
void set_log_sink(LogSink sink);

void log_line(LogChannel channel, std::string_view line);
void warn_line(std::string_view line);
// True the first time that `key` is seen by this process.
[[nodiscard]] bool first_warning(std::string_view key);
// Forgets the keys seen, for tests and for a new session of a long-lived process.
void reset_warnings();

// Arguments are formatted only when the channel is on.
template <class... Args>
void log(LogChannel channel, fmt::format_string<Args...> format, Args&&... args) {
  if (log_enabled(channel)) log_line(channel, fmt::format(format, std::forward<Args>(args)...));
}

// Says the line once for each `key`, whatever the arguments; returns whether it was said now.
template <class... Args>
bool warn(std::string_view key, fmt::format_string<Args...> format, Args&&... args) {
  if (!first_warning(key)) return false;
  warn_line(fmt::format(format, std::forward<Args>(args)...));
  return true;
}

}  // namespace inkle
