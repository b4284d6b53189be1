// `inkle run`: one call of a model, its outputs as .npy files or as a summary.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/session.h"
#include "cli/summary.h"
#include "frontend/pt2/npy.h"

namespace inkle::cli {
namespace {

struct RunArguments {
  CompileArguments compile;
  ArgumentOptions inputs;
  std::string output;
  std::vector<std::string> expected;
  double tolerance = 1e-5;
  bool random = false;
};

using Results = std::vector<PlainHost::Result>;

void save(const Results& results, const Model& model, const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) user_error("{}: {}", folder, error.message());
  for (std::size_t i = 0; i < results.size(); ++i) {
    const PlainHost::Result& result = results[i];
    const std::string path = fmt::format("{}/{}_{}.npy", folder, i, model.outputs[i]);
    if (const auto* tensor = std::get_if<TensorData>(&result)) {
      frontend::pt2::write_npy(path, tensor->view());
    } else if (const auto* integer = std::get_if<std::int64_t>(&result)) {
      TensorData scalar = frontend::pt2::make_tensor(abi::DType::i64, {});
      std::memcpy(scalar.data, integer, sizeof *integer);
      frontend::pt2::write_npy(path, scalar.view());
    } else {
      continue;
    }
    std::printf("%s\n", path.c_str());
  }
}

void print(const Results& results, const Model& model) {
  for (std::size_t i = 0; i < results.size(); ++i) {
    const PlainHost::Result& result = results[i];
    std::string text = "none";
    if (const auto* tensor = std::get_if<TensorData>(&result)) text = summary(*tensor);
    if (const auto* integer = std::get_if<std::int64_t>(&result))
      text = fmt::format("{}", *integer);
    std::printf("%s: %s\n", model.outputs[i].c_str(), text.c_str());
  }
}

// Each file is the next output's. UserError names the first that differs.
void compare(const Results& results, const Model& model, const RunArguments& a) {
  if (a.expected.size() > results.size()) {
    user_error("--expect: {} files, but {} outputs", a.expected.size(), results.size());
  }
  for (std::size_t i = 0; i < a.expected.size(); ++i) {
    const auto* tensor = std::get_if<TensorData>(&results[i]);
    if (tensor == nullptr) user_error("--expect: output {} is no tensor", model.outputs[i]);
    const auto wanted = frontend::pt2::read_npy(a.expected[i]);
    const std::string text = difference(*tensor, wanted, a.tolerance);
    if (!text.empty()) user_error("output {}: {}", model.outputs[i], text);
  }
  std::printf("%zu outputs as expected\n", a.expected.size());
}

void run(const RunArguments& a) {
  const Model model = load_model_on(a.compile);
  ArgumentOptions options = a.inputs;
  options.random = a.random;
  const Arguments arguments = make_arguments(model, options);
  Session session(model, a.compile, arguments);
  const Results results = session.run(true);
  if (!a.expected.empty()) return compare(results, model, a);
  if (a.output.empty()) {
    print(results, model);
  } else {
    save(results, model, a.output);
  }
}

}  // namespace

void add_run(CLI::App& app) {
  auto arguments = std::make_shared<RunArguments>();
  CLI::App* command = app.add_subcommand("run", "Compile a model and call it once.");
  add_compile_options(*command, arguments->compile);
  add_device_option(*command, arguments->compile);
  add_input_options(*command, arguments->inputs);
  command->add_option(
      "-o,--output", arguments->output,
      "folder for the outputs, one .npy file each; without it a summary is printed");
  command
      ->add_option(
          "--expect", arguments->expected,
          "FILE.npy with the expected value of the next output (repeat for more); exits with 1 if "
          "one differs")
      ->allow_extra_args(false);
  command
      ->add_option("--tolerance", arguments->tolerance,
                   "of --expect: a part of the output's largest magnitude")
      ->capture_default_str();
  command->add_flag(
      "--random", arguments->random,
      "random numbers for inputs that are not given: floats in [-1, 1), integers 0, 1");
  command->callback([arguments] { run(*arguments); });
}

}  // namespace inkle::cli
