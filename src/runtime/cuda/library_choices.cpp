#include "runtime/cuda/library_choices.h"

#include <fmt/format.h>

#include "runtime/cuda/device.h"

namespace inkle::runtime::cuda {

std::string device_of(const abi::DeviceDescription& device) {
  return fmt::format("{}, {}, {} multiprocessors, driver {}", device.name, device.architecture,
                     device.parallelism, device.driver_version);
}

void ChoicesInMemory::give(std::span<const package::LibraryChoice> choices) {
  const std::lock_guard lock(mutex_);
  for (const package::LibraryChoice& c : choices) {
    here_.insert_or_assign({c.library, c.device, c.problem}, c.algorithm);
  }
}

std::vector<package::LibraryChoice> ChoicesInMemory::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<package::LibraryChoice> all;
  for (const auto& [key, algorithm] : here_) {
    all.push_back({key.library, key.device, key.problem, algorithm});
  }
  return all;
}

std::optional<std::string> ChoicesInMemory::find(const ChoiceKey& key) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto at = here_.find(key); at != here_.end()) return at->second;
  }
  return other_ ? other_->find(key) : std::nullopt;
}

// What was given is no more: the library did not know it, or refused to run it.
void ChoicesInMemory::keep(const ChoiceKey& key, std::string_view algorithm) {
  {
    const std::lock_guard lock(mutex_);
    here_.erase(key);
    if (!other_) here_.emplace(key, algorithm);
  }
  if (other_) other_->keep(key, algorithm);
}

void ChoicesInMemory::settle() noexcept {
  if (other_) other_->settle();
}

void give_choices(Device& device, std::span<const package::LibraryChoice> choices) {
  if (choices.empty()) return;
  static std::mutex giving;
  const std::lock_guard lock(giving);
  auto memory = std::dynamic_pointer_cast<ChoicesInMemory>(device.library_choices());
  if (memory == nullptr) memory = std::make_shared<ChoicesInMemory>(device.library_choices());
  memory->give(choices);
  device.set_library_choices(std::move(memory));
}

}  // namespace inkle::runtime::cuda
