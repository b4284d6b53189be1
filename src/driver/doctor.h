// What an installation has and what it lacks: `inkle doctor` and `inkle.doctor()`, which add a
// program that is compiled and run.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace inkle::driver {

struct Finding {
  enum class Level : std::uint8_t { ok, warning, error };

  Level level = Level::ok;
  std::string topic;
  std::string what;
  std::string remedy = {};  // what to do; empty if all is well
};

[[nodiscard]] std::string_view name_of(Finding::Level level);
// "warning  cache: it is full; INKLE_CACHE_LIMIT raises its limit"
[[nodiscard]] std::string to_string(const Finding& finding);

// Of this process and machine: build, settings, processor, libraries, GPUs, caches. Opens every
// library, writes nothing but a file in the cache's folder that it deletes again. Never throws for
// what it finds.
[[nodiscard]] std::vector<Finding> examine();

}  // namespace inkle::driver
