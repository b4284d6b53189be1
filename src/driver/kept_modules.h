// Kernels of a GPU that earlier processes have compiled, in a cache: one entry for each module of
// NVRTC's, and one for each of its kernels, which says where it is. A module holds several kernels,
// as they were compiled together; another graph takes those it has.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "cache/store.h"
#include "driver/target.h"

namespace inkle::driver {

// For one compilation; the store may be null, which has and keeps nothing.
class KeptModules {
 public:
  // `made_with`: all that modules depend on but the kernel.
  KeptModules(std::shared_ptr<cache::Store> store, Identity made_with,
              std::string_view architecture)
      : store_(std::move(store)), made_with_(std::move(made_with)), architecture_(architecture) {}

  // Nothing, unless both entries are there and right.
  [[nodiscard]] std::optional<TargetKernel> find(const TargetUnit& unit);
  // Kernels whose workspace depends on sizes are not kept.
  void keep(const TargetUnit& unit, const TargetKernel& made);
  // After the above.
  void settle() {
    if (store_ != nullptr) store_->settle();
  }

 private:
  [[nodiscard]] cache::Key key_of(const TargetUnit& unit) const;
  [[nodiscard]] cache::Key key_of_module(const std::string& digest) const;
  [[nodiscard]] std::shared_ptr<const abi::DeviceImage> module(const std::string& digest);

  std::shared_ptr<cache::Store> store_;
  Identity made_with_;
  std::string architecture_;
  std::map<std::string, std::shared_ptr<const abi::DeviceImage>> found_;  // by digest
  std::map<const abi::DeviceImage*, std::string> kept_;                   // digests
};

}  // namespace inkle::driver
