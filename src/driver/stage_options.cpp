#include "driver/stage_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace inkle::driver {

namespace {

// The pass that `fail_stage` makes miscompile, if it is one of `stage`.
std::string miscompiled(const CompileOptions& options, std::string_view stage) {
  constexpr std::string_view kSuffix = "/miscompile";
  std::string_view text = options.fail_stage;
  if (!text.starts_with(stage) || !text.ends_with(kSuffix)) return {};
  text.remove_suffix(kSuffix.size());
  text.remove_prefix(std::min(stage.size() + 1, text.size()));
  return std::string(text);
}

// Names are of passes over graphs or over nests; others are refused.
std::vector<std::string> skipped(const CompileOptions& options, bool of_nests) {
  std::vector<std::string> names;
  for (const std::string& name : options.skip_passes) {
    const bool is_nest_pass = schedule::find_nest_pass(name) != nullptr;
    if (!is_nest_pass && passes::find_pass(name) == nullptr) {
      user_error("there is no pass '{}': inkle opt --list names them", name);
    }
    if (is_nest_pass == of_nests) names.push_back(name);
  }
  return names;
}

// Passes over graphs that are left out. Whether decomposed attention is found may depend
// on the batch (of one row it looks otherwise), and its result then would.
std::vector<std::string> skipped_passes(const CompileOptions& options) {
  std::vector<std::string> names = skipped(options, false);
  if (options.numerics == abi::Numerics::batch_invariant) {
    for (const char* name : {"attention", "joint_attention", "training_attention"}) {
      names.emplace_back(name);
    }
  }
  // Folding computes in f64 and rounds once.
  if (options.numerics == abi::Numerics::bitwise) names.emplace_back("fold_constants");
  return names;
}

// The kernel pass that `fail_stage` names; none where it names a stage.
kernel::PassFault pass_fault(std::string_view stage) {
  constexpr std::string_view kPrefix = "codegen/";
  constexpr std::string_view kWrong = "/wrong", kMiscompile = "/miscompile";
  if (!stage.starts_with(kPrefix)) return {};
  stage.remove_prefix(kPrefix.size());
  const bool wrong_kernel = stage.ends_with(kWrong), miscompiles = stage.ends_with(kMiscompile);
  if (wrong_kernel) stage.remove_suffix(kWrong.size());
  if (miscompiles) stage.remove_suffix(kMiscompile.size());
  return {std::string(stage), wrong_kernel, miscompiles};
}

}  // namespace

passes::RunOptions graph_pass_options(const CompileOptions& options, PassLimit& limit) {
  passes::RunOptions run;
  run.skip = skipped_passes(options);
  run.limit = &limit;
  run.miscompile = miscompiled(options, "passes");
  run.verify = options.verify;
  return run;
}

schedule::NestPassOptions nest_pass_options(const CompileOptions& options, Report& report,
                                            UnsupportedNodes& found, PassLimit& limit) {
  constexpr std::string_view kPrefix = "schedule/";
  schedule::NestPassOptions run{.skip = skipped(options, true),
                                .stop_after = options.stop_after_nest_passes,
                                .verify_each = options.verify_nest_passes,
                                .limit = &limit,
                                .found = &found,
                                .miscompile = miscompiled(options, "schedule"),
                                .dump = options.dump_nest_pass,
                                .timings = &report.nest_passes};
  const bool fails = options.fail_stage.starts_with(kPrefix) && run.miscompile.empty();
  if (fails) run.fail = options.fail_stage.substr(kPrefix.size());
  return run;
}

bool makes_all_kernels(const kernel::PassOptions& passes) {
  return !passes.fault.pass.empty() || passes.dump != nullptr || passes.optional != PassLimit::kAll;
}

bool keeps_functions(const CompileOptions& options, const abi::DeviceDescription& device) {
  return options.numerics == abi::Numerics::bitwise && device.kind == abi::DeviceKind::cuda;
}

CodeOptions code_options(const CompileOptions& options, const Report& report,
                         const abi::DeviceDescription& device) {
  kernel::PassOptions passes{.fault = pass_fault(options.fail_stage)};
  if (keeps_functions(options, device)) passes.skip.emplace_back("numerics");
  if (options.pass_limit != PassLimit::kAll) {
    passes.optional =
        options.pass_limit - std::min(options.pass_limit, report.optional_passes.size());
  }
  if (options.dump_kernel_pass) {
    passes.dump = [&options](std::string_view pass, const kernel::Kernel& kernel) {
      options.dump_kernel_pass(pass, kernel::to_string(kernel));
    };
  }
  const bool makes_all = makes_all_kernels(passes);
  return {.text = options.keep_code,
          .object = options.keep_objects,
          .only_text = options.only_text,
          .passes = std::move(passes),
          .cache = options.cache && !makes_all};
}

}  // namespace inkle::driver
