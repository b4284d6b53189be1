// Schedules that were measured on a GPU, kept in a folder, so that a later process need not measure
// again. One small file for each; the folder may be deleted at any time.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string_view>

#include "schedule/kernel.h"

namespace inkle::driver {

// Never fails: what cannot be read or written (a folder that is read-only, a full disk, a file that
// was damaged) is said on the channel `cache`, and the schedule is measured. Several processes may
// share a folder.
class MeasuredSchedules {
 public:
  static constexpr std::size_t kMostFiles = 8192;

  // With an empty path nothing is found nor kept. With more files than `most_files`, the oldest are
  // deleted.
  explicit MeasuredSchedules(std::filesystem::path folder, std::size_t most_files = kMostFiles)
      : folder_(std::move(folder)), most_files_(most_files) {}

  // `key`: all that the choice depends on, as text.
  [[nodiscard]] std::optional<schedule::BlockSchedule> find(std::string_view key) const;

  // Replaces what was known. The file is whole or is not there.
  void keep(std::string_view key, const schedule::BlockSchedule& schedule) const;

  // Deletes the oldest files, if there are too many; after a number of keep().
  void trim() const;

  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }

 private:
  [[nodiscard]] std::filesystem::path path_of(std::string_view key) const;

  std::filesystem::path folder_;
  std::size_t most_files_;
};

// The user's folder: `schedules` in INKLE_CACHE_DIR (empty: none), else in `inkle` of
// XDG_CACHE_HOME or of ~/.cache; empty if none of these is set.
[[nodiscard]] std::filesystem::path user_schedules_folder();

}  // namespace inkle::driver
