#include "cli/commands.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/threads.h"

namespace inkle::cli {

void add_compile_options(CLI::App& command, CompileArguments& a) {
  command.add_option("file", a.file, ".pt2 file of torch.export, or graph text")->required();
  command.add_flag("--freeze", a.load.freeze,
                   "treat the weights of a .pt2 file as constants that are computed with");
  command.add_option("--weights", a.load.weights,
                     "safetensors file for the parameters of a text graph");
  command.add_flag("--fast-numerics", a.fast_numerics,
                   "drop roundings to f16 and bf16 between fused ops");
  command.add_option("--skip-pass", a.skip_passes, "leave this pass out (again for more)")
      ->allow_extra_args(false);
  command.add_option("--threads", a.threads, "number of threads")->check(CLI::PositiveNumber);
}

void add_device_option(CLI::App& command, CompileArguments& a) {
  command.add_option("--device", a.device, "cpu, cuda, or cuda:NUMBER; null:sm_90a: no launches")
      ->capture_default_str();
}

void add_input_options(CLI::App& command, ArgumentOptions& a) {
  command
      .add_option("-i,--input", a.inputs,
                  "NAME=FILE.npy, or FILE.npy for the next input in order (again for more)")
      ->allow_extra_args(false);
  command.add_option("--size", a.sizes, "SYMBOL=NUMBER, a size of random inputs (again for more)")
      ->allow_extra_args(false);
  command.add_option("--seed", a.seed, "of random inputs");
}

driver::Compiled compile(driver::Compiler& compiler, graph::Graph graph,
                         const CompileArguments& arguments, driver::CompileOptions options) {
  if (arguments.threads > 0) set_num_threads(arguments.threads);
  options.fast_numerics = arguments.fast_numerics;
  options.skip_passes = arguments.skip_passes;
  options.passes.freeze = arguments.load.freeze;
  driver::Compiled compiled = compiler.compile(std::move(graph), options);
  if (!compiled.report.eager.empty()) {
    unsupported("{}: these ops need PyTorch's eager mode, which the command has not: {}",
                arguments.file, fmt::format("{}", fmt::join(compiled.report.eager, ", ")));
  }
  return compiled;
}

}  // namespace inkle::cli
