// `inkle bench`: time of compiling and of a call.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "base/threads.h"
#include "cli/commands.h"
#include "cli/session.h"
#include "runtime/common/size_program.h"

namespace inkle::cli {
namespace {

struct BenchArguments {
  CompileArguments compile;
  ArgumentOptions inputs;
  double seconds = 2;
  int runs = 1000;
  bool steps = false;
};

using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

void print_steps(Session& session) {
  const driver::Report& report = session.compiled().report;
  std::vector<double> total;
  constexpr int kRuns = 10;
  for (int r = 0; r < kRuns; ++r) {
    const std::vector<double> times = session.run_profiled();
    total.resize(times.size(), 0);
    for (std::size_t i = 0; i < times.size(); ++i) total[i] += times[i] / kRuns;
  }
  for (std::size_t i = 0; i < total.size() && i < report.steps.size(); ++i) {
    const driver::StepReport& s = report.steps[i];
    std::printf("%9.1f us  %-12s %-8s %s  %s\n", total[i], s.kind.c_str(), s.kernel.c_str(),
                s.label.c_str(), s.source.c_str());
  }
}

// What the size program costs in a call whose sizes are not those of the last one.
void print_sizes(const driver::Compiled& compiled, const Arguments& arguments) {
  const runtime::common::SizeProgram sizes(*compiled.plan);
  if (sizes.is_constant()) return;
  const std::vector<abi::TensorView> views = arguments.views();
  std::vector<std::int64_t> slots = sizes.constant_slots();
  constexpr int kRuns = 20000;
  const auto start = Clock::now();
  for (int r = 0; r < kRuns; ++r) {
    (void)sizes.evaluate(views, arguments.integers, slots, true);
  }
  std::printf("sizes     %9.3f us where they change  (%zu instructions, %zu guards)\n",
              milliseconds_since(start) * 1e3 / kRuns, compiled.plan->size_program.size(),
              compiled.plan->guards.size());
}

void bench(const BenchArguments& a) {
  auto start = Clock::now();
  const Model model = load_model_on(a.compile);
  std::printf("read      %9.2f ms\n", milliseconds_since(start));
  const Arguments arguments = make_arguments(model, a.inputs);
  start = Clock::now();
  Session session(model, a.compile, arguments);
  const driver::Compiled& compiled = session.compiled();
  std::printf("compile   %9.2f ms", milliseconds_since(start));
  for (const driver::StageTime& s : compiled.report.stages) {
    std::printf("  %s %.1f", s.stage.c_str(), s.seconds * 1e3);
  }
  std::printf("\n");
  std::vector<double> times;
  const auto begin = Clock::now();
  const auto enough = [&] {
    return times.size() > 3 &&
           (static_cast<int>(times.size()) > a.runs || milliseconds_since(begin) > a.seconds * 1e3);
  };
  while (!enough()) {
    start = Clock::now();
    session.run(false);
    times.push_back(milliseconds_since(start));
  }
  std::printf("first run %9.3f ms\n", times.front());
  times.erase(times.begin());
  std::sort(times.begin(), times.end());
  std::printf("run       %9.3f ms min  %.3f ms median  (%zu runs, %d threads)\n", times.front(),
              times[times.size() / 2], times.size(), num_threads());
  std::printf("launches  %u kernels (%u distinct), %u library calls\n", compiled.report.launches,
              compiled.report.kernels, compiled.report.library_calls);
  const runtime::common::MemoryReport memory = session.executable().memory();
  std::printf("memory    %.2f MB arena, %.2f MB scratch, %.2f MB packed weights\n",
              static_cast<double>(memory.arena_bytes) * 1e-6,
              static_cast<double>(memory.scratch_bytes) * 1e-6,
              static_cast<double>(memory.packed_weight_bytes) * 1e-6);
  print_sizes(compiled, arguments);
  if (a.steps) print_steps(session);
}

}  // namespace

void add_bench(CLI::App& app) {
  auto arguments = std::make_shared<BenchArguments>();
  CLI::App* command =
      app.add_subcommand("bench", "Time a model; inputs that are not given are random.");
  add_compile_options(*command, arguments->compile);
  add_device_option(*command, arguments->compile);
  add_input_options(*command, arguments->inputs);
  command->add_option("--seconds", arguments->seconds, "stop after this time")
      ->capture_default_str()
      ->check(at_least(0));
  command->add_option("--runs", arguments->runs, "stop after this many calls")
      ->capture_default_str()
      ->check(at_least(1));
  command->add_flag("--steps", arguments->steps, "the time of each step, too");
  command->callback([arguments] { bench(*arguments); });
}

}  // namespace inkle::cli
