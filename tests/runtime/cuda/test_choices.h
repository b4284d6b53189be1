// Choices of libraries that are kept in memory, for tests.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/cuda/library_choices.h"

namespace inkle::runtime::cuda {

class TestChoices final : public LibraryChoices {
 public:
  std::optional<std::string> find(const ChoiceKey& key) override {
    ++asked;
    if (const auto at = kept.find(text_of(key)); at != kept.end()) return at->second;
    return {};
  }
  void keep(const ChoiceKey& key, std::string_view algorithm) override {
    ++times_kept;
    kept[text_of(key)] = algorithm;
  }
  static std::string text_of(const ChoiceKey& key) {
    return key.library + "\n" + key.device + "\n" + key.problem;
  }

  std::map<std::string, std::string> kept;
  int asked = 0, times_kept = 0;
};

}  // namespace inkle::runtime::cuda
