// Which of a library's algorithms was measured to be the fastest for a problem, as whoever opens
// the device keeps it from process to process. Then a later process neither measures again nor has
// other bits.
#pragma once

#include <compare>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "abi/device.h"
#include "package/contents.h"

namespace inkle::runtime::cuda {

class Device;

// All that a choice depends on.
struct ChoiceKey {
  std::string library;  // and its version
  std::string device;   // and its driver's version
  std::string problem;  // types, sizes, strides, what is fused
  friend auto operator<=>(const ChoiceKey&, const ChoiceKey&) = default;
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

// Those of this process, in memory: what was given to it, as packages do, and before what `other`
// has. What is measured goes to `other` if there is one, else here.
class ChoicesInMemory final : public LibraryChoices {
 public:
  explicit ChoicesInMemory(std::shared_ptr<LibraryChoices> other = nullptr)
      : other_(std::move(other)) {}
  void give(std::span<const package::LibraryChoice> choices);
  // All that lie here, in the order of their keys.
  [[nodiscard]] std::vector<package::LibraryChoice> all() const;

  [[nodiscard]] std::optional<std::string> find(const ChoiceKey& key) override;
  void keep(const ChoiceKey& key, std::string_view algorithm) override;
  void settle() noexcept override;

 private:
  mutable std::mutex mutex_;
  std::map<ChoiceKey, std::string> here_;
  std::shared_ptr<LibraryChoices> other_;
};

// From now on the device looks at these first. For several programs one after the other.
void give_choices(Device& device, std::span<const package::LibraryChoice> choices);

}  // namespace inkle::runtime::cuda
