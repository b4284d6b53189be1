// Runs the stages of one compilation: times, dumps, notes on errors.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <functional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/log.h"
#include "driver/pipeline.h"

namespace inkle::driver {

class StageRunner {
 public:
  StageRunner(const CompileOptions& options, Report& report) : options_(options), report_(report) {}

  template <class F>
  auto run(std::string_view stage, F&& f) {
    const auto start = std::chrono::steady_clock::now();
    try {
      if (options_.fail_stage == stage) throw InternalError("made to fail by option fail_stage");
      auto result = f();
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
      report_.stages.push_back({std::string(stage), seconds.count()});
      log(LogChannel::driver, "{}: {:.2f} ms", stage, seconds.count() * 1e3);
      return result;
    } catch (Error& e) {
      e.add_note(fmt::format("in stage {}", stage));
      throw;
    }
  }

  void dump(std::string_view stage, const std::function<std::string()>& text) const {
    if (options_.dump) options_.dump(stage, text());
  }

 private:
  const CompileOptions& options_;
  Report& report_;
};

}  // namespace inkle::driver
