#include "cli/commands.h"

#include <fmt/format.h>

namespace inkle::cli {
namespace {

void add_numerics_option(CLI::App& command, abi::Numerics& numerics, const std::string& meaning,
                         const std::vector<std::string>& names) {
  const auto set = [&numerics](const std::string& name) { numerics = *abi::numerics_named(name); };
  command.add_option_function<std::string>("--numerics", set, meaning)->check(CLI::IsMember(names));
}

constexpr const char* kNumerics =
    "fast: drop roundings to f16 and bf16 between fused ops; batch_invariant: on a CPU, the bits "
    "of a row do not depend on the batch around it; eager: neither";

}  // namespace

void add_compile_options(CLI::App& command, CompileArguments& a) {
  command.add_option("file", a.file, ".pt2 file of torch.export, package, or graph text")
      ->required();
  command.add_flag("--freeze", a.load.freeze,
                   "treat the weights of a .pt2 file as constants that are computed with");
  command.add_option("--weights", a.load.weights,
                     "safetensors file for the parameters of a text graph");
  add_numerics_option(
      command, a.numerics,
      std::string(kNumerics) + "; bitwise: of graph text whose ops have eager's bits",
      {"eager", "fast", "batch_invariant", "bitwise"});
  command.add_option("--skip-pass", a.skip_passes, "leave this pass out (repeat for more)")
      ->allow_extra_args(false);
  command.add_option("--pass-limit", a.pass_limit,
                     "run only the first N of the optional passes over "
                     "graphs, nests and kernels, for bisection");
  command.add_flag("--training", a.training,
                   "compile as a forward or backward graph: weights change with every call");
  command
      .add_option("--fail-stage", a.fail_stage, "for tests: as the option of that name in Python")
      ->group("");
  command.add_option("--threads", a.threads, "number of threads")->check(at_least(1));
  add_key_option(command, a.load.key);
}

void add_numerics_option(CLI::App& command, abi::Numerics& numerics) {
  add_numerics_option(command, numerics, kNumerics, {"eager", "fast", "batch_invariant"});
}

void add_key_option(CLI::App& command, std::optional<std::string>& key) {
  command.add_option("--key", key,
                     "file of the public key that must have signed the package, or the line in it; "
                     "else that of INKLE_PACKAGE_KEY");
}

CLI::Validator at_least(int least) {
  const auto problem = [least](const std::string& text) {
    double number = 0;
    const bool is_number = CLI::detail::lexical_cast(text, number);
    return is_number && number >= least ? std::string()
                                        : fmt::format("{} is no number from {} on", text, least);
  };
  return {problem, fmt::format("{} or more", least)};
}

void add_device_option(CLI::App& command, CompileArguments& a) {
  command
      .add_option(
          "--device", a.device,
          "cpu, cuda, or cuda:NUMBER; cpu:x86-64-v3: code for that instruction set; null:sm_90a: "
          "no launches")
      ->capture_default_str();
}

void add_input_options(CLI::App& command, ArgumentOptions& a) {
  command
      .add_option("-i,--input", a.inputs,
                  "NAME=FILE.npy, or FILE.npy for the next input in order (repeat for more)")
      ->allow_extra_args(false);
  command.add_option("--size", a.sizes, "SYMBOL=NUMBER, a size of random inputs (repeat for more)")
      ->allow_extra_args(false);
  command.add_option("--seed", a.seed, "of random inputs");
}

}  // namespace inkle::cli
