#include "driver/measured.h"

#include <cstddef>
#include <span>

#include "base/error.h"
#include "base/log.h"

namespace inkle::driver {
namespace {

// Schedules are shorter.
constexpr std::size_t kMostBytes = 4096;

// The build is no field: kernel and candidates are there in full.
cache::Key to_key(const MeasuredKey& key) {
  return {{"kind", "measured schedule 1"},
          {"machine", key.machine},
          {"helpers", key.helpers},
          {"sizes", key.sizes},
          {"candidates", cache::digest_of(key.candidates)},
          {"measured kernel", cache::digest_of(key.kernel)}};
}

}  // namespace

std::shared_ptr<cache::Store> MeasuredSchedules::store() const {
  return store_ ? store_() : nullptr;
}

std::optional<schedule::BlockSchedule> MeasuredSchedules::find(const MeasuredKey& key) const {
  const std::shared_ptr<cache::Store> kept = store();
  if (kept == nullptr) return std::nullopt;
  const auto entry = kept->find(to_key(key), key.name);
  if (!entry) return std::nullopt;
  try {
    if (entry->size() > kMostBytes) user_error("it is too long for a schedule");
    return schedule::parse_blocks({reinterpret_cast<const char*>(entry->data()), entry->size()});
  } catch (const UserError& error) {
    log(LogChannel::cache, "a schedule is measured again: {}", error.what());
    return std::nullopt;
  }
}

void MeasuredSchedules::keep(const MeasuredKey& key,
                             const schedule::BlockSchedule& schedule) const {
  const std::shared_ptr<cache::Store> kept = store();
  if (kept == nullptr) return;
  const std::string text = to_string(schedule);
  kept->put(to_key(key), std::as_bytes(std::span(text)));
}

void MeasuredSchedules::settle() const {
  if (const std::shared_ptr<cache::Store> kept = store(); kept != nullptr) kept->settle();
}

}  // namespace inkle::driver
