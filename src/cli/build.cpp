// `inkle build`: a model to a package that needs no compiler. `inkle check`: every byte of one.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <span>
#include <system_error>
#include <variant>
#include <vector>

#include "base/error.h"
#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/package_text.h"
#include "cli/session.h"
#include "driver/range_guards.h"
#include "driver/stored.h"
#include "graph/text.h"
#include "image/processor.h"
#include "package/package.h"
#include "package/reason.h"
#include "package/signature.h"
#include "package/target.h"
#include "package/writer.h"
#include "runtime/common/plan_of_file.h"
#include "runtime/cuda/framework_steps.h"
#include "runtime/cuda/library_choices.h"

namespace inkle::cli {
namespace {

struct BuildArguments {
  CompileArguments compile;
  std::vector<std::string> targets;
  std::string output;
  std::string weights = "together";
  bool tune = false;
  std::string sign;  // file of a secret key; or empty
};

std::vector<std::uint32_t> parameters_of(const Model& model) {
  std::vector<std::uint32_t> parameters;
  for (std::size_t i = 0; i < model.graph.inputs.size(); ++i) {
    if (!model.weights[i] && !model.graph.inputs[i].is_parameter) continue;
    parameters.push_back(static_cast<std::uint32_t>(i));
  }
  return parameters;
}

std::vector<package::GivenWeight> weights_of(const Model& model) {
  std::vector<package::GivenWeight> weights;
  for (std::size_t i = 0; i < model.weights.size(); ++i) {
    if (!model.weights[i]) continue;
    weights.push_back({static_cast<std::uint32_t>(i), model.weights[i]->view()});
  }
  return weights;
}

// Devices as commands name them: of the targets that are asked for, else what is here.
std::vector<std::string> devices_of(const BuildArguments& a) {
  std::vector<std::string> devices;
  for (const std::string& target : a.targets) {
    devices.push_back((package::is_of_gpu(target) ? "null:" : "cpu:") + target);
  }
  if (!devices.empty()) return devices;
  if (a.compile.device != "cpu") return {a.compile.device};
  const image::InstructionSet* const here = image::instruction_set_here();
  if (here == nullptr) unsupported("this processor has no AVX2 with FMA");
  return {fmt::format("cpu:{}", here->name)};
}

// All of what a GPU's target lacks, rather than the first at the first call. Ops in eager of other
// targets are write_package's to refuse.
void refuse_steps(const package::TargetProgram& target) {
  if (target.architecture.empty()) return;
  const auto steps = runtime::cuda::framework_steps(*target.made.plan);
  if (steps.empty()) return;
  unsupported("a package runs without a framework, and on {} these ops need one: {}",
              target.architecture, fmt::join(steps, ", "));
}

// What libraries of the GPU do best in a call of random inputs, measured now: not what a cache has
// of other builds.
std::vector<package::LibraryChoice> measure_libraries(const Model& model, DeviceCompiler on,
                                                      driver::Compiled compiled) {
  const auto measured = std::make_shared<runtime::cuda::ChoicesInMemory>();
  on.gpu->set_library_choices(measured);
  const Arguments arguments = make_arguments(model, {});
  Session session(std::move(on), std::move(compiled), arguments);
  session.run(false);
  return measured->all();
}

package::TargetProgram compile(const BuildArguments& a, const Model& model,
                               const std::string& device) {
  CompileArguments arguments = a.compile;
  arguments.device = device;
  DeviceCompiler on(arguments);
  const bool on_gpu = on.gpu != nullptr;
  // Of a GPU, too, all kernels are compiled together: modules of a cache may be other graphs', and
  // a package's bytes are a function of its model.
  on.options.keep_objects = true;
  on.options.tune = a.tune;
  const driver::Compiled compiled = on.compile(model.graph);
  auto plan = std::make_shared<const abi::Plan>(
      driver::with_guards(*compiled.plan, driver::ranges_of(model.graph)));
  package::TargetProgram target{
      on_gpu ? nullptr : image::instruction_set_named(device.substr(device.find(':') + 1)),
      {std::move(plan), compiled.code},
      on.compiler->device().architecture,
      driver::facts_of(compiled.report)};
  refuse_steps(target);
  if (on_gpu && a.tune) target.choices = measure_libraries(model, std::move(on), compiled);
  return target;
}

void build(const BuildArguments& a) {
  const Model model = load_model(a.compile.file, a.compile.load);
  if (model.package != nullptr) user_error("{} is a package already", a.compile.file);
  std::optional<package::SecretKey> key;
  if (!a.sign.empty()) key = package::SecretKey::read(a.sign);
  package::PackageInput input;
  for (const std::string& device : devices_of(a)) {
    input.targets.push_back(compile(a, model, device));
  }
  if (a.weights != "none") input.weights = weights_of(model);
  input.separate_weights = a.weights == "separate";
  input.parameters = parameters_of(model);
  input.output_names = model.outputs;
  input.graph = graph::to_string(model.graph);
  const package::HeaderBytes header = package::write_package(a.output, input);
  if (key) package::write_signature(a.output, package::sign(header, *key));
}

// Of a framework, what a plan needs; a file that this build wrote needs none.
std::vector<std::string> framework_steps(const abi::Plan& plan, bool on_gpu) {
  if (on_gpu) return runtime::cuda::framework_steps(plan);
  std::vector<std::string> names;
  for (const abi::PlanStep& step : plan.steps) {
    if (const auto* eager = std::get_if<abi::EagerCall>(&step.action)) names.push_back(eager->name);
  }
  return names;
}

// The plans of all targets, as runtimes check them.
void check_plans(const package::Package& package, std::span<const package::Contents> all) {
  std::size_t number = 0;
  for (const package::Section& section : package.sections()) {
    if (section.kind != package::SectionKind::plan) continue;
    const abi::Plan& plan = all[number++].plan;
    try {
      runtime::common::check_plan_of_file(plan);
    } catch (const UserError& error) {
      package::bad_package(package::Reason::bad_plan, "{}", error.what());
    } catch (const Unsupported& error) {
      package::unfit_package(package::Reason::unsupported_plan, "{}", error.what());
    }
    const auto steps = framework_steps(plan, package::is_of_gpu(section.target));
    if (steps.empty()) continue;
    package::unfit_package(package::Reason::needs_framework, "on {} these ops need a framework: {}",
                           section.target, fmt::join(steps, ", "));
  }
}

// Whether there is a signature; that it is right where a key is required.
std::string signature_text(const std::string& path, const package::Trust& trust) {
  if (trust.key() != nullptr) {
    return fmt::format("signed by key {}\n", package::to_string(trust.key()->id()));
  }
  std::error_code error;
  const std::filesystem::path signature = package::signature_path(path);
  if (!std::filesystem::exists(signature, error)) return "not signed, and no key is required\n";
  return fmt::format("signature in {}, not checked: no key is given (--key)\n", signature.string());
}

void check(const std::string& path, const std::optional<std::string>& key) {
  const package::Trust trust = package::Trust::of(key);
  const auto package = package::Package::open(path, package::Package::Use::read, {}, trust);
  const auto all = package->check_all();
  try {
    check_plans(*package, all);
  } catch (const package::BadPackage& error) {
    throw package::BadPackage(path, error);
  } catch (const package::UnfitPackage& error) {
    throw package::UnfitPackage(path, error);
  }
  std::printf("%s", sections_text(*package).c_str());
  std::printf("%s", targets_text(*package, all).c_str());
  const std::filesystem::path other = package::weights_path(path);
  if (std::ranges::any_of(all, [](const auto& c) { return c.weights_hash.has_value(); })) {
    const bool is_here = std::filesystem::exists(other);
    std::printf("weights in %s%s\n", other.string().c_str(), is_here ? "" : ", which is not here");
  }
  std::printf("%s", signature_text(path, trust).c_str());
  std::printf("%s: ok\n", path.c_str());
}

}  // namespace

void add_build(CLI::App& app) {
  auto arguments = std::make_shared<BuildArguments>();
  CLI::App* command =
      app.add_subcommand("build", "Compile a model to a package that runs without a compiler.");
  CompileArguments& compile = arguments->compile;
  command->add_option("file", compile.file, ".pt2 file of torch.export, or graph text")->required();
  command->add_option("-o,--output", arguments->output, "the package")->required();
  command
      ->add_option("--target", arguments->targets,
                   "x86-64-v3, x86-64-v4, x86-64-v4+amx; sm_90a and the like of GPUs, or "
                   "compute_80, PTX for all later ones; repeat for more, the best first; else this "
                   "machine's")
      ->allow_extra_args(false);
  command
      ->add_option("--device", compile.device,
                   "cuda or cuda:NUMBER: for the GPU that is here, instead of --target")
      ->capture_default_str();
  command->add_flag(
      "--tune", arguments->tune,
      "measure schedules of kernels, and what cuBLASLt and cuDNN do best, on that GPU, "
      "once, while building");
  command
      ->add_option(
          "--weights", arguments->weights,
          "together: in the package; separate: in a file of their own beside it, NAME.weights; "
          "none: given when it runs")
      ->capture_default_str()
      ->check(CLI::IsMember({"together", "separate", "none"}));
  command->add_option("--sign", arguments->sign,
                      "file of a secret key (inkle key) that signs it: OUTPUT.sig beside it");
  command->add_flag("--freeze", compile.load.freeze,
                    "treat the weights of a .pt2 file as constants that are computed with");
  add_numerics_option(*command, compile.numerics);
  command->add_option("--threads", compile.threads, "number of threads")->check(at_least(1));
  command->callback([arguments] { build(*arguments); });
}

void add_check(CLI::App& app) {
  auto path = std::make_shared<std::string>();
  auto key = std::make_shared<std::optional<std::string>>();
  CLI::App* command = app.add_subcommand(
      "check",
      "Check every byte of a package, and tell which machines it runs on; runs nothing of it.");
  command->add_option("file", *path, "package")->required();
  add_key_option(*command, *key);
  command->callback([path, key] { check(*path, *key); });
}

}  // namespace inkle::cli
