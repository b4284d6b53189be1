// `inkle doctor`: whether all that Inkle needs is there, and a program that is compiled and run.
#include "cli/doctor.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/error.h"
#include "cli/session.h"
#include "driver/doctor.h"
#include "graph/text.h"
#include "ops/table.h"
#include "runtime/cuda/cuda_device.h"

namespace inkle::cli {
namespace {

using driver::Finding;

// A product by the library, and a kernel.
constexpr const char* kProgram =
    "graph @doctor(%x: f32[16,32], %w: f32[32,24]) -> f32[16,24] {\n"
    "  %0: f32[16,24] = mm(%x, %w)\n"
    "  %1: f32[16,24] = exp(%0)\n"
    "  return %1\n"
    "}\n";
constexpr std::size_t kRows = 16, kTerms = 32, kColumns = 24;
constexpr double kTolerance = 1e-2;  // of products that may be in tf32

std::span<const float> floats(const TensorData& tensor, std::size_t count) {
  return {reinterpret_cast<const float*>(tensor.data), count};
}

// The largest relative error.
double error_of(const TensorData& found, const Arguments& arguments) {
  const auto x = floats(arguments.tensors[0], kRows * kTerms);
  const auto w = floats(arguments.tensors[1], kTerms * kColumns);
  const auto y = floats(found, kRows * kColumns);
  double largest = 0;
  for (std::size_t i = 0; i < kRows; ++i) {
    for (std::size_t j = 0; j < kColumns; ++j) {
      double sum = 0;
      for (std::size_t k = 0; k < kTerms; ++k) {
        sum += static_cast<double>(x[i * kTerms + k]) * static_cast<double>(w[k * kColumns + j]);
      }
      const double wanted = std::exp(sum);
      const double error = std::abs(static_cast<double>(y[i * kColumns + j]) - wanted) / wanted;
      largest = std::isnan(error) ? error : std::max(largest, error);
      if (std::isnan(largest)) return largest;
    }
  }
  return largest;
}

Finding smoke_test(const std::string& device) {
  Finding finding{.topic = "smoke test on " + device, .what = "a program is compiled and run"};
  try {
    Model model{graph::parse(kProgram, "doctor", ops::op_table()), {}, {"y"}, nullptr};
    model.weights.resize(model.graph.inputs.size());
    const Arguments arguments = make_arguments(model, {});
    CompileArguments options;
    options.file = "doctor";
    options.device = device;
    Session session(model, options, arguments);
    const auto results = session.run(true);
    const double error = error_of(std::get<TensorData>(results.at(0)), arguments);
    if (error <= kTolerance) return finding;
    finding.what = fmt::format("a program gives wrong results, by {:.3g}", error);
  } catch (const std::exception& error) {
    finding.what = error.what();
  }
  finding.level = Finding::Level::error;
  finding.remedy = "report it with all these lines";
  return finding;
}

void doctor() {
  bool has_error = false;
  const auto tell = [&](const Finding& finding) {
    has_error = has_error || finding.level == Finding::Level::error;
    std::printf("%s\n", driver::to_string(finding).c_str());
  };
  for (const Finding& finding : driver::examine()) tell(finding);
  tell(smoke_test("cpu"));
  std::string why_not;
  const int gpus = runtime::cuda::device_count(why_not);
  for (int gpu = 0; gpu < gpus; ++gpu) tell(smoke_test(fmt::format("cuda:{}", gpu)));
  if (has_error) user_error("something that Inkle needs is wrong: see above");
}

}  // namespace

void add_doctor(CLI::App& app) {
  app.add_subcommand(
         "doctor",
         "Check that everything Inkle needs is installed and print what to do; exit code 1 "
         "if something is wrong.")
      ->callback(doctor);
}

}  // namespace inkle::cli
