// Which of a library's algorithms was measured to be the fastest for a problem, as whoever opens
// the device keeps it from process to process. Then a later process neither measures again nor has
// other bits.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "abi/device.h"

namespace inkle::runtime::cuda {

// All that a choice depends on.
struct ChoiceKey {
  std::string library;  // and its version
  std::string device;   // and its driver's version
  std::string problem;  // types, sizes, strides, what is fused
};

// The card's name and architecture, its multiprocessors, and the driver's version.
[[nodiscard]] std::string device_of(const abi::DeviceDescription& device);

// Thread-safe. What it gives is a name that the library is asked about, and no more: a name that
// the library does not know, or an algorithm that it refuses to run, is measured again.
class LibraryChoices {
 public:
  virtual ~LibraryChoices() = default;
  // The algorithm's name. Never fails: what cannot be read is not there.
  [[nodiscard]] virtual std::optional<std::string> find(const ChoiceKey& key) = 0;
  virtual void keep(const ChoiceKey& key, std::string_view algorithm) = 0;
  // After a number of the above.
  virtual void settle() noexcept {}
};

}  // namespace inkle::runtime::cuda
