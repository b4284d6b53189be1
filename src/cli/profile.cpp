// `inkle profile`: each kernel and library call of a model against the limits of the machine.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/session.h"
#include "driver/profile.h"

namespace inkle::cli {
namespace {

struct ProfileArguments {
  CompileArguments compile;
  ArgumentOptions inputs;
  double seconds = 1;
  std::size_t most = 40;
};

void profile(const ProfileArguments& a) {
  using Clock = std::chrono::steady_clock;
  const Model model = load_model_on(a.compile);
  const Arguments arguments = make_arguments(model, a.inputs);
  Session session(model, a.compile, arguments);
  driver::Inspection inspection;
  inspection.plan = session.compiled().plan;
  inspection.report = session.compiled().report;
  inspection.slots = driver::slots_of(*inspection.plan, arguments.views(), arguments.integers);
  session.run(false);  // measures what is measured once
  std::vector<double> least(inspection.plan->steps.size(), INFINITY);
  constexpr int kLeast = 5;
  constexpr int kMost = 1000;
  const auto begin = Clock::now();
  for (int i = 0; i < kMost; ++i) {
    const std::chrono::duration<double> spent = Clock::now() - begin;
    if (i >= kLeast && spent.count() > a.seconds) break;
    const std::vector<double> times = session.run_profiled();
    for (std::size_t s = 0; s < times.size(); ++s) least[s] = std::min(least[s], times[s]);
  }
  inspection.step_microseconds = std::move(least);
  for (std::size_t s = 0; s < inspection.plan->steps.size(); ++s) {
    inspection.implementations.push_back(session.executable().implementation(s));
  }
  inspection.limits = driver::measure_limits(session.device());
  fmt::print("{}\n{}", session.device().name,
             driver::profile_text(driver::profile_rows(inspection), a.most));
}

}  // namespace

void add_profile(CLI::App& app) {
  auto arguments = std::make_shared<ProfileArguments>();
  CLI::App* command = app.add_subcommand(
      "profile", "Time each kernel and library call of a model against the machine's limits.");
  add_compile_options(*command, arguments->compile);
  add_device_option(*command, arguments->compile);
  add_input_options(*command, arguments->inputs);
  command->add_option("--seconds", arguments->seconds, "to spend on measuring")
      ->capture_default_str()
      ->check(at_least(0));
  command->add_option("--most", arguments->most, "lines of the table")
      ->capture_default_str()
      ->check(at_least(1));
  command->callback([arguments] { profile(*arguments); });
}

}  // namespace inkle::cli
