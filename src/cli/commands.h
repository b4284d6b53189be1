// The commands of `inkle`. Each adds its options to the parser and returns what to do when it was
// chosen; errors are thrown.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>

#include "abi/numerics.h"
#include "cli/arguments.h"
#include "cli/model.h"
#include "driver/pipeline.h"

namespace inkle::cli {

void add_run(CLI::App& app);
void add_bench(CLI::App& app);
void add_profile(CLI::App& app);
void add_opt(CLI::App& app);
void add_lower(CLI::App& app);
void add_compile(CLI::App& app);
void add_inspect(CLI::App& app);
void add_kernels(CLI::App& app);
void add_corpus(CLI::App& app);
void add_kernel(CLI::App& app);
void add_build(CLI::App& app);
void add_check(CLI::App& app);
void add_key(CLI::App& app);
void add_sign(CLI::App& app);

// Options that commands share.
struct CompileArguments {
  std::string file;
  LoadOptions load;
  abi::Numerics numerics = abi::Numerics::eager;
  std::vector<std::string> skip_passes;
  std::size_t pass_limit = PassLimit::kAll;
  std::string fail_stage;
  bool training = false;
  int threads = 0;
  std::string device = "cpu";
};
void add_compile_options(CLI::App& command, CompileArguments& arguments);
// --device, for commands that run on any.
void add_device_option(CLI::App& command, CompileArguments& arguments);
// --numerics, for commands that compile.
void add_numerics_option(CLI::App& command, abi::Numerics& numerics);
// --key, for commands that load packages: the public key that must have signed them.
void add_key_option(CLI::App& command, std::optional<std::string>& key);
void add_input_options(CLI::App& command, ArgumentOptions& arguments);
// Checks that a number is at least `least`; CLI11's own checks tell the largest double, too.
[[nodiscard]] CLI::Validator at_least(int least);

}  // namespace inkle::cli
