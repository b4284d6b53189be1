#include "driver/kept_choices.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/log.h"

namespace inkle::driver {
namespace {

using runtime::cuda::ChoiceKey;
using runtime::cuda::LibraryChoices;

// Names of algorithms are shorter, and printable.
constexpr std::size_t kMostBytes = 1024;
// Processes that compile nothing settle no store otherwise.
constexpr unsigned kSettleAfter = 16;

// The build is no field: problems are described in full.
cache::Key to_key(const ChoiceKey& key) {
  return {{"kind", "choice of a library 1"},
          {"library", key.library},
          {"machine", key.device},
          {"problem", key.problem}};
}

class StoredChoices final : public LibraryChoices {
 public:
  explicit StoredChoices(std::function<std::shared_ptr<cache::Store>()> store)
      : store_(std::move(store)) {}

  std::optional<std::string> find(const ChoiceKey& key) override {
    const std::shared_ptr<cache::Store> store = store_();
    if (store == nullptr) return {};
    const auto entry = store->find(to_key(key));
    if (!entry || entry->empty() || entry->size() > kMostBytes) return {};
    std::string name(reinterpret_cast<const char*>(entry->data()), entry->size());
    const auto is_printable = [](char c) { return c >= ' ' && c <= '~'; };
    if (!std::ranges::all_of(name, is_printable)) return {};
    return name;
  }

  void keep(const ChoiceKey& key, std::string_view algorithm) override {
    const std::shared_ptr<cache::Store> store = store_();
    if (store == nullptr) return;
    store->put(to_key(key), std::as_bytes(std::span(algorithm.data(), algorithm.size())));
    if (++kept_ % kSettleAfter == 0) settle();
  }

  void settle() noexcept override {
    try {
      if (const std::shared_ptr<cache::Store> store = store_(); store != nullptr) store->settle();
    } catch (const std::exception& error) {
      log(LogChannel::cache, "choices of libraries: {}", error.what());
    }
  }

 private:
  std::function<std::shared_ptr<cache::Store>()> store_;
  std::atomic<unsigned> kept_ = 0;
};

}  // namespace

std::shared_ptr<LibraryChoices> choices_in(std::function<std::shared_ptr<cache::Store>()> store) {
  return std::make_shared<StoredChoices>(std::move(store));
}

void keep_choices(runtime::cuda::Device& device) {
  if (device.library_choices() == nullptr) {
    device.set_library_choices(choices_in(cache::user_store));
  }
}

}  // namespace inkle::driver
