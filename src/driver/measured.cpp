#include "driver/measured.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"

namespace inkle::driver {
namespace {

namespace fs = std::filesystem;

// The first line of a file. The second is the schedule, the third a hash of key and schedule: a
// file that was cut short, or belongs to another key, does not have it.
constexpr std::string_view kFirstLine = "inkle schedule 1";

std::string check_of(std::string_view key, std::string_view schedule) {
  return to_hex(hash_combine(hash128(key), hash128(schedule)));
}

}  // namespace

fs::path MeasuredSchedules::path_of(std::string_view key) const {
  return folder_ / to_hex(hash128(key));
}

std::optional<schedule::BlockSchedule> MeasuredSchedules::find(std::string_view key) const {
  if (folder_.empty()) return std::nullopt;
  const fs::path path = path_of(key);
  std::ifstream file(path);
  if (!file) return std::nullopt;
  std::string first, schedule, check;
  std::getline(file, first);
  std::getline(file, schedule);
  std::getline(file, check);
  if (!file || first != kFirstLine || check != check_of(key, schedule)) {
    log(LogChannel::cache, "{} is damaged, its schedule is measured again", path.string());
    return std::nullopt;
  }
  try {
    return schedule::parse_blocks(schedule);
  } catch (const UserError& error) {
    log(LogChannel::cache, "{}: {}", path.string(), error.what());
    return std::nullopt;
  }
}

void MeasuredSchedules::keep(std::string_view key, const schedule::BlockSchedule& schedule) const {
  if (folder_.empty()) return;
  std::error_code error;
  if (fs::create_directories(folder_, error)) {
    fs::permissions(folder_, fs::perms::owner_all, error);
  }
  const std::string text = to_string(schedule);
  static std::atomic<std::uint64_t> count{0};
  const fs::path path = path_of(key);
  const fs::path written =
      folder_ / fmt::format("{}.{}.{}", path.filename().string(), ::getpid(), ++count);
  std::ofstream file(written);
  file << kFirstLine << '\n' << text << '\n' << check_of(key, text) << '\n';
  file.close();
  if (file) fs::rename(written, path, error);
  if (!file || error) {
    log(LogChannel::cache, "{} cannot be written, its schedule is not kept", path.string());
    fs::remove(written, error);
  }
}

void MeasuredSchedules::trim() const {
  if (folder_.empty()) return;
  std::error_code error;
  std::vector<std::pair<fs::file_time_type, fs::path>> files;
  for (fs::directory_iterator at(folder_, error), end; !error && at != end; at.increment(error)) {
    std::error_code gone;  // by another process
    const fs::file_time_type time = at->last_write_time(gone);
    if (!gone) files.emplace_back(time, at->path());
  }
  if (files.size() <= most_files_) return;
  std::sort(files.begin(), files.end());
  // Some more, so that not every process has to.
  const std::size_t surplus = files.size() - most_files_ + most_files_ / 8;
  for (std::size_t f = 0; f < surplus; ++f) fs::remove(files[f].second, error);
  log(LogChannel::cache, "{} of {} schedules in {} deleted", surplus, files.size(),
      folder_.string());
}

fs::path user_schedules_folder() {
  if (const char* given = std::getenv("INKLE_CACHE_DIR"); given != nullptr) {
    return *given == '\0' ? fs::path() : fs::path(given) / "schedules";
  }
  if (const char* given = std::getenv("XDG_CACHE_HOME"); given != nullptr && *given != '\0') {
    return fs::path(given) / "inkle" / "schedules";
  }
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home == '\0') return {};
  return fs::path(home) / ".cache" / "inkle" / "schedules";
}

}  // namespace inkle::driver
