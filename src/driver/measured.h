// Schedules that were measured on a GPU, in the user's cache, so that a later process need not
// measure again: one entry for each kernel, sizes and device.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "cache/store.h"
#include "schedule/kernel.h"

namespace inkle::driver {

// All that the choice of a schedule depends on; and a name, for `inkle cache explain`.
struct MeasuredKey {
  std::string machine;     // card, architecture and driver
  std::string helpers;     // a hash of what all kernels include
  std::string sizes;       // bytes of the parameters, and sizes
  std::string candidates;  // the schedules to choose from, as text
  std::string kernel;      // its code with the model's schedule
  std::string name = {};
};

// Never fails: what cannot be read or kept is measured (cache/store.h). Several processes may share
// a store.
class MeasuredSchedules {
 public:
  // In the store that this gives whenever it is asked; without one, or null: nothing is kept.
  explicit MeasuredSchedules(std::function<std::shared_ptr<cache::Store>()> store = {})
      : store_(std::move(store)) {}

  [[nodiscard]] std::optional<schedule::BlockSchedule> find(const MeasuredKey& key) const;
  // Replaces what was known.
  void keep(const MeasuredKey& key, const schedule::BlockSchedule& schedule) const;
  // After a number of the above.
  void settle() const;

 private:
  [[nodiscard]] std::shared_ptr<cache::Store> store() const;

  std::function<std::shared_ptr<cache::Store>()> store_;
};

}  // namespace inkle::driver
