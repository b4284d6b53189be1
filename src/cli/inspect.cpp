// `inkle inspect`: a page about a compiled program.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "base/error.h"
#include "base/log.h"
#include "base/threads.h"
#include "cli/commands.h"
#include "cli/package_text.h"
#include "cli/session.h"
#include "driver/inspect.h"

namespace inkle::cli {
namespace {

using Clock = std::chrono::steady_clock;

struct InspectArguments {
  CompileArguments compile;
  ArgumentOptions inputs;
  std::string output;
  double seconds = 1;
  bool no_run = false;
  bool no_code = false;
};

// Takes the lines of the log's channel `fusion` while it lives; other channels that are on go where
// they went, that one too if it was on.
class FusionLog {
 public:
  explicit FusionLog(std::vector<std::string>& lines) {
    for (std::size_t c = 0; c < log_channels().size(); ++c) {
      const auto channel = static_cast<LogChannel>(c);
      if (log_enabled(channel))
        before_ += (before_.empty() ? "" : ",") + std::string(name(channel));
    }
    const bool was_on = log_enabled(LogChannel::fusion);
    set_log_sink([&lines, was_on](std::string_view line) {
      const bool is_fusion = line.starts_with("inkle fusion: ");
      if (is_fusion) lines.emplace_back(line.substr(line.find(':') + 2));
      if (!is_fusion || was_on) fmt::print(stderr, "{}\n", line);
    });
    set_log_channels(before_.empty() ? "fusion" : before_ + ",fusion");
  }
  ~FusionLog() {
    set_log_sink({});
    set_log_channels(before_);
  }
  FusionLog(const FusionLog&) = delete;
  FusionLog& operator=(const FusionLog&) = delete;

 private:
  std::string before_;
};

// Least times of calls and of each step, after one call to warm up: what else the machine does
// only adds.
void measure(Session& session, double seconds, driver::Inspection& inspection) {
  constexpr std::size_t kLeast = 5;
  constexpr std::size_t kMost = 1000;
  const auto repeat = [&](auto&& once) {
    const auto begin = Clock::now();
    for (std::size_t i = 0; i < kMost; ++i) {
      const std::chrono::duration<double> spent = Clock::now() - begin;
      if (i >= kLeast && spent.count() > seconds / 2) break;
      once();
    }
  };
  session.run(false);
  std::vector<double> calls;
  repeat([&] {
    const auto start = Clock::now();
    session.run(false);
    calls.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
  });
  std::vector<double> steps(inspection.plan->steps.size(), INFINITY);
  repeat([&] {
    const std::vector<double> times = session.run_profiled();
    for (std::size_t s = 0; s < times.size(); ++s) steps[s] = std::min(steps[s], times[s]);
  });
  inspection.runs = static_cast<int>(calls.size());
  inspection.call_microseconds = *std::min_element(calls.begin(), calls.end());
  inspection.step_microseconds = std::move(steps);
}

void run_plan(Session& session, double seconds, driver::Inspection& inspection) {
  measure(session, seconds, inspection);
  for (std::size_t s = 0; s < inspection.plan->steps.size(); ++s) {
    inspection.implementations.push_back(session.executable().implementation(s));
  }
  const runtime::common::MemoryReport memory = session.executable().memory();
  inspection.scratch_bytes = memory.scratch_bytes;
  inspection.packed_weight_bytes = memory.packed_weight_bytes;
}

// What is in a package: its plan and graph, no stages, no code.
void inspect_package(const InspectArguments& a, const Model& model, const Arguments& arguments,
                     driver::Inspection& inspection) {
  const package::Package& package = *model.package;
  Session session(model, a.compile, arguments);
  inspection.plan = session.compiled().plan;
  inspection.report = session.compiled().report;
  inspection.device = fmt::format("package for {}, {} threads", package.target(), num_threads());
  inspection.slots = driver::slots_of(*inspection.plan, arguments.views(), arguments.integers);
  inspection.texts.emplace_back("package", sections_text(package));
  inspection.texts.emplace_back("graph", package.graph_text());
  inspection.texts.emplace_back("plan", abi::to_string(*inspection.plan));
  if (a.no_run) {
    inspection.not_run = "the program was not run (--no-run).";
    return;
  }
  run_plan(session, a.seconds, inspection);
  inspection.limits = driver::measure_limits(session.device());
}

driver::Inspection inspect_model(const InspectArguments& a) {
  const Model model = load_model_on(a.compile);
  const Arguments arguments = make_arguments(model, a.inputs);
  driver::Inspection inspection;
  inspection.title = std::filesystem::path(a.compile.file).filename().string();
  if (model.package != nullptr) {
    inspect_package(a, model, arguments, inspection);
    return inspection;
  }
  DeviceCompiler on(a.compile);
  on.options.keep_code = !a.no_code;
  on.options.dump = [&](std::string_view stage, const std::string& text) {
    if (stage != "kernels") inspection.texts.emplace_back(stage, text);
  };
  driver::Compiled compiled;
  {
    const FusionLog log(inspection.fusion);
    compiled = on.compile(model.graph);
  }
  inspection.plan = compiled.plan;
  inspection.code = compiled.code;
  inspection.report = compiled.report;
  inspection.device = on.compiler->device().name;
  if (on.gpu == nullptr) inspection.device += fmt::format(", {} threads", num_threads());
  inspection.slots = driver::slots_of(*inspection.plan, arguments.views(), arguments.integers);
  if (a.no_run) {
    inspection.not_run = "the program was not run (--no-run).";
  } else if (!inspection.report.eager.empty()) {
    inspection.not_run = "ops that are left to PyTorch's eager mode cannot run in the command.";
  } else {
    Session session(std::move(on), std::move(compiled), arguments);
    try {
      run_plan(session, a.seconds, inspection);
      inspection.limits = driver::measure_limits(session.device());
    } catch (const Unsupported& error) {  // calls that PyTorch would make
      inspection.not_run = fmt::format("{}.", error.what());
    }
  }
  return inspection;
}

void write_file(const std::string& path, const std::string& text) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) user_error("{}: is a folder", path);
  std::ofstream file(path, std::ios::binary);
  if (!file) user_error("{}: cannot be written", path);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  if (!file) user_error("{}: could not be written whole", path);
}

void inspect(const InspectArguments& a) {
  const std::string page = driver::inspect_page(inspect_model(a));
  const std::string path =
      a.output.empty() ? std::filesystem::path(a.compile.file).stem().string() + ".html" : a.output;
  write_file(path, page);
  fmt::print("{}\n", path);
}

}  // namespace

void add_inspect(CLI::App& app) {
  auto arguments = std::make_shared<InspectArguments>();
  CLI::App* command = app.add_subcommand(
      "inspect", "Write an HTML report: fusions, kernels, times, memory, machine limits.");
  add_compile_options(*command, arguments->compile);
  add_device_option(*command, arguments->compile);
  add_input_options(*command, arguments->inputs);
  command->add_option("-o,--output", arguments->output,
                      "the page; without it the model's name with .html, in this folder");
  command->add_option("--seconds", arguments->seconds, "to spend on measuring calls")
      ->capture_default_str()
      ->check(at_least(0));
  command->add_flag("--no-run", arguments->no_run, "compile only: no times, no limits");
  command->add_flag("--no-code", arguments->no_code, "leave out LLVM IR and assembly");
  command->callback([arguments] { inspect(*arguments); });
}

}  // namespace inkle::cli
