// For bisection: how many of the passes that may be left out still run, counted over all tables of
// passes of one compilation. Those that later stages need always run, and do not count.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace inkle {

class PassLimit {
 public:
  static constexpr std::size_t kAll = ~std::size_t{0};
  explicit PassLimit(std::size_t most = kAll) : most_(most) {}

  // Whether the next pass runs, which is `stage`'s of this name.
  bool admits(std::string_view stage, std::string_view pass) {
    names_.push_back(std::string(stage) + "/" + std::string(pass));
    return names_.size() <= most_;
  }
  // Of all that have asked, in order, admitted or not.
  [[nodiscard]] const std::vector<std::string>& names() const { return names_; }

 private:
  std::size_t most_;
  std::vector<std::string> names_;
};

}  // namespace inkle
