// `inkle kernel`: texts of the kernel IR, in files of their own or in packages. `run` interprets
// one with all its threads under many schedules and says what is wrong with it; `mutate` makes it
// wrong in one place after the other and says what was noticed.
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <optional>
#include <span>

#include "abi/plan.h"
#include "base/error.h"
#include "cli/commands.h"
#include "kernel/interpret_inputs.h"
#include "kernel/mutate.h"
#include "kernel/parse.h"
#include "kernel/verify.h"
#include "package/package.h"
#include "package/signature.h"

namespace inkle::cli {
namespace {

struct KernelTextArguments {
  std::string file;
  std::string name;    // of a package's kernels
  std::string target;  // of a package's targets
  std::optional<std::string> key;
  std::vector<std::string> sizes;
  std::uint64_t inputs = 0;
  std::int64_t elements = 0;
  std::int64_t every = 1;
  bool all = false;
  kernel::CheckOptions check;
};

// The plan of the target that is asked for, else of the first. Nothing is loaded to run.
abi::Plan plan_of_package(const KernelTextArguments& a) {
  using package::Package;
  const auto package = Package::open(a.file, Package::Use::read, {}, package::Trust::of(a.key));
  std::vector<package::Contents> all = package->check_all();
  std::vector<std::string_view> targets;
  for (const package::Section& section : package->sections()) {
    if (section.kind != package::SectionKind::plan) continue;
    if (a.target.empty() || section.target == a.target) {
      return std::move(all.at(targets.size()).plan);
    }
    targets.push_back(section.target);
  }
  user_error("{}: no target '{}', only {}", a.file, a.target, fmt::join(targets, ", "));
}

kernel::ParsedKernel kernel_of_package(const KernelTextArguments& a) {
  const abi::Plan plan = plan_of_package(a);
  std::vector<std::string_view> names;
  for (const abi::KernelDecl& kernel : plan.kernels) {
    names.emplace_back(kernel.name);
    if (kernel.name != a.name) continue;
    if (kernel.text.empty()) {
      user_error("{}: holds no text of {}; build it again with this version", a.file, a.name);
    }
    return kernel::parse_kernel(kernel.text, fmt::format("{}:{}", a.file, a.name));
  }
  user_error("{}: {}; give --kernel NAME, one of {}", a.file,
             a.name.empty() ? "is a package" : fmt::format("has no kernel '{}'", a.name),
             fmt::join(names, ", "));
}

kernel::ParsedKernel load_kernel(const KernelTextArguments& a) {
  std::ifstream file(a.file, std::ios::binary);
  if (!file) user_error("{}: cannot be read", a.file);
  std::array<char, 8> start{};
  file.read(start.data(), start.size());
  if (package::Package::is_package(std::as_bytes(std::span(start)))) return kernel_of_package(a);
  if (!a.name.empty() || !a.target.empty() || a.key) {
    user_error("{}: is no package, which --kernel, --target and --key are about", a.file);
  }
  file.clear();
  file.seekg(0);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return kernel::parse_kernel(text, a.file);
}

kernel::Inputs make_inputs(const kernel::Kernel& kernel, const KernelTextArguments& a,
                           kernel::Digits digits) {
  const auto is_open = [](const kernel::Memory& m) {
    return m.shape.empty() && m.space == kernel::Space::global;
  };
  if (a.elements == 0 && std::ranges::any_of(kernel.memories, is_open)) {
    user_error("{}: kernel {}: arguments of [?] have no size in the text: give --elements NUMBER",
               a.file, kernel.name);
  }
  return kernel::make_inputs(kernel, kernel::choose_sizes(kernel, a.sizes), a.inputs, digits,
                             a.elements);
}

void run_kernel(const KernelTextArguments& a) {
  const kernel::ParsedKernel parsed = load_kernel(a);
  kernel::verify(parsed.kernel);
  const kernel::Inputs inputs = make_inputs(parsed.kernel, a, kernel::Digits::few);
  const kernel::CheckResult result = kernel::check(parsed.kernel, inputs.instances, a.check);
  for (const kernel::Finding& finding : result.findings) {
    fmt::print("{}: {}\n", result.schedule, kernel::to_string(parsed.kernel, finding));
  }
  fmt::print("{} runs, {} steps, {} findings", result.runs, result.steps, result.findings.size());
  if (a.check.max_orders > 0) {
    fmt::print(", {} orders{}", result.orders, result.all_orders ? ", which are all" : "");
  }
  if (result.status != 0) fmt::print(", the call failed with status {}", result.status);
  fmt::print("\n");
  if (!result.findings.empty()) user_error("{}: the kernel is wrong", a.file);
}

void mutate_kernel(const KernelTextArguments& a) {
  const kernel::ParsedKernel parsed = load_kernel(a);
  kernel::verify(parsed.kernel);
  const kernel::Inputs inputs = make_inputs(parsed.kernel, a, kernel::Digits::many);
  constexpr std::array<std::string_view, 4> kVerdicts = {"verifier", "interpreter", "result",
                                                         "survived"};
  std::array<std::size_t, 4> counts{};
  const kernel::MutationOptions options{a.every, a.check};
  const std::vector<std::vector<kernel::Instance>> arguments = {inputs.instances};
  for (const kernel::MutationOutcome& outcome :
       kernel::try_mutations(parsed.kernel, arguments, options)) {
    const auto verdict = static_cast<std::size_t>(outcome.verdict);
    ++counts.at(verdict);
    if (a.all || outcome.verdict == kernel::Verdict::survived) {
      fmt::print("{:12} {}{}\n", kVerdicts.at(verdict),
                 kernel::to_string(parsed.kernel, outcome.mutation),
                 outcome.why.empty() ? "" : "\n             " + outcome.why);
    }
  }
  fmt::print("caught by the verifier {}, by the interpreter {}, by the result {}; survived {}\n",
             counts[0], counts[1], counts[2], counts[3]);
}

void add_options(CLI::App& command, KernelTextArguments& a) {
  command.add_option("file", a.file, "kernel text, or a package")->required();
  command.add_option("--kernel", a.name, "of a package: the kernel's name");
  command.add_option("--target", a.target, "of a package: the target; default: the first");
  add_key_option(command, a.key);
  command.add_option("--size", a.sizes, "SYMBOL=NUMBER, sizes; default: hints, or small values");
  command.add_option("--inputs", a.inputs, "seed of the arguments' values");
  command.add_option("--elements", a.elements, "of each argument whose size is [?]")
      ->check(at_least(1));
  command.add_option("--seeds", a.check.seeds, "random schedules")->capture_default_str();
  command.add_option("--orders", a.check.max_orders,
                     "explore up to N orders of the synchronising accesses");
  command.add_option("--steps", a.check.max_steps, "most operations of single threads a run")
      ->capture_default_str();
  command.add_flag("!--any-order", a.check.compare_results,
                   "results may depend on the schedule, as those of float atomics do");
}

}  // namespace

void add_kernel(CLI::App& app) {
  auto arguments = std::make_shared<KernelTextArguments>();
  CLI::App* command = app.add_subcommand("kernel", "Check kernel IR without a GPU.");
  command->require_subcommand(1);
  CLI::App* run = command->add_subcommand("run",
                                          "Interpret a kernel under many thread schedules; report "
                                          "races, out-of-bounds accesses, hangs.");
  add_options(*run, *arguments);
  run->callback([arguments] { run_kernel(*arguments); });
  CLI::App* mutate = command->add_subcommand(
      "mutate",
      "Mutate a kernel, one place at a time; report the mutations that no check detects.");
  add_options(*mutate, *arguments);
  mutate->add_option("--every", arguments->every, "try only every Nth mutation")
      ->check(at_least(1));
  mutate->add_flag("--all", arguments->all, "also print the mutations that are detected");
  mutate->callback([arguments] { mutate_kernel(*arguments); });
}

}  // namespace inkle::cli
